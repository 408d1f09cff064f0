"""What a project's own workers and pipelines do while brokers and their processes fail.

A private cluster of three brokers is started in a temporary folder, with a copy of the project
whose addresses all lead there. Events made of a sample are sent at a rate while faults of a
schedule, which follows from a seed, happen one after the other. Then everything is consumed, and
what was acknowledged is compared with what is there: of pipelines by the books of ``reconcile``, of
workers by the ids of the events in the records that they sent. Nothing of the real project is
written: neither its cluster, nor its lake, nor its positions.

The steps: :mod:`.isolation` makes the copy, :mod:`.cluster` the brokers, :mod:`.instances` the
processes; :mod:`.schedule` says which fault comes when, :mod:`.faults` makes it; :mod:`.sender` and
:mod:`.progress` note when anything was written and processed; :mod:`.arrivals` and :mod:`.books`
compare; :mod:`.drill` has all of it in order.
"""
