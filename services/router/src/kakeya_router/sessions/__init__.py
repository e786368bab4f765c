"""A session as a whole: created, forked, rewound, parked on request, drained, reaped.

How it comes to a lane is said in `lanes/`: `resuming.py` resumes it, and it queues in `admission_queue.py`.
"""
