"""ResourceClaims of this node: what the API server says of one, what was prepared for it, and what that means.

reading     a claim's allocation, and what it asks of the driver, as far as they concern this one
records     what was given to a claim, and how far its preparation or its end has come
files       the records on disk, one file for each claim
holdings    the records as holdings of a resource
choosing    the ids of a resource that an allocated claim gets
staleness   whether a record's claim has ended without an Unprepare
doubts      whether there may be claims without a record
store       the records of all claims, and the resources that are told of them
"""
