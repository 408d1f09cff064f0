"""An instance of the stages with time: it has some partitions, and adds up and orders windows.

=================== ==============================================================================
lease holder        which partitions it has, on a thread of its own
watchdog            whether the loop hangs, so that the lease is not renewed
instance            the loop: takes records and ticks of all its partitions, on one thread
owned partition     what one partition comes to, and its transactions
restoring           what a partition begins with
starts              where it goes on in the topics, though records may be deleted
topic ends          where topics of events end, on a thread of its own
quiet               the time of topics without new events
=================== ==============================================================================
"""
