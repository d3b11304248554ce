"""The pages that say how the gateway is, over HTTP. They change nothing.

pages        which pages there are, and what each says
answers      what a page says, and the headers around it
statusz      the gateway as text, in the form of Kubernetes' components
metrics      the gateway in numbers, as Prometheus reads them
rows         which numbers these are
connections  HTTP, with limits: uvicorn's, loaded only when the pages are on
serving      listens where the configuration says, and follows its changes
"""
