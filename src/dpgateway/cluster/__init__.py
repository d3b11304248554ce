"""The API server, for a front that needs it. Nothing here loads the client library before a request is made.

account    the server's address, and the files of the account
transport  what every request has in common on the wire
client     the library's client, renewed with the account's files
errors     what an answer that isn't the wanted one means
server     requests: get, list, create, replace, delete
watching   the objects of one selector, kept up to date
"""
