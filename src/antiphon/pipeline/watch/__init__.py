"""Watch: a directory into which members are still writing, judged as it grows.

The driver looks which files are new, and hands each batch of them to tasks that read the files and carry every run's
state on. What a batch says counts when its commit file is there: state, alarms and the list of files read carry the
batch's number, and what a batch that was cut off has left is removed, so nothing is lost or doubled.
"""

from antiphon.pipeline.watch.directory_watch import DirectoryWatch

__all__ = ["DirectoryWatch"]
