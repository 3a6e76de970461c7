"""Watch: a directory into which members are still writing, judged as it grows.

A stream of file *names* (Structured Streaming) hands each batch to tasks that read the files and carry every run's
state on. What a batch says counts when its commit file is there: state and alarms carry the batch's number and appear
by rename, so a batch that is done again after a crash writes the same files again, and nothing is lost or doubled.
"""

from antiphon.pipeline.watch.directory_watch import DirectoryWatch, wait

__all__ = ["DirectoryWatch", "wait"]
