"""Read-only pages about the gateway, over HTTP.

pages        the table of pages, and the content of each
answers      the ASGI application: methods, host names, headers
statusz      the status as text, in the form of Kubernetes' components
series       the tables of metrics, and how each is read from the figures
dra_series   those of a gateway with DRA
metrics      their samples in Prometheus' format
connections  HTTP with limits: uvicorn's, loaded only when the pages are on
serving      listens where the configuration says, and follows its changes
"""
