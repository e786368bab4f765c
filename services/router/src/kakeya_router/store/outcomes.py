"""What the Lua scripts answer, as their headers say; generated from them (make outcomes)."""

from enum import StrEnum

BeginClose = StrEnum("BeginClose", "CLAIMED MISSING KEPT")
BeginOperation = StrEnum("BeginOperation", "BEGUN PARKED RECOVER MOVED APART FAILED UNKNOWN MISSING LOST BUSY QUOTA")
DeleteSession = StrEnum("DeleteSession", "DELETED GONE")
DrainWorker = StrEnum("DrainWorker", "MARKED UNKNOWN")
DropWorker = StrEnum("DropWorker", "DROPPED KEPT")
EndOperation = StrEnum("EndOperation", "ENDED CLOSING GONE REGRESSED UNKNOWN UNLIKE")
EnterQueue = StrEnum("EnterQueue", "WAITING FULL QUOTA")
ExtendJournal = StrEnum("ExtendJournal", "EXTENDED GONE")
FailSession = StrEnum("FailSession", "FAILED GONE")
Heartbeat = StrEnum("Heartbeat", "RENEWED UNKNOWN")
JoinWorker = StrEnum("JoinWorker", "JOINED REPLACED RENEWED TAKEN OTHER_MODEL SWEEPING")
LoseLane = StrEnum("LoseLane", "PARKED LOST GONE")
LoseSession = StrEnum("LoseSession", "LOST PARKED GONE BUSY ALIVE")
MarkOpen = StrEnum("MarkOpen", "OPEN GONE")
MoveSession = StrEnum("MoveSession", "MOVED FULL AWAY CHANGED")
OfferLane = StrEnum("OfferLane", "OFFERED BUSY CHANGED")
ParkSession = StrEnum("ParkSession", "PARKED NO_LANE LEFT UNRECOVERABLE KEPT CHANGED FAILED MISSING LOST BUSY")
PinOperation = StrEnum("PinOperation", "PINNED GONE")
ReleaseOperation = StrEnum("ReleaseOperation", "RELEASED GONE")
RenewOpening = StrEnum("RenewOpening", "RENEWED GONE")
RenewOperation = StrEnum("RenewOperation", "RENEWED GONE")
ReportLane = StrEnum("ReportLane", "UPDATED KEPT ORPHAN")
ReserveSession = StrEnum("ReserveSession", "RESERVED DUPLICATE QUOTA FULL WAIT GONE CHANGED")
ResumeSession = StrEnum("ResumeSession", "RESUMED FULL AWAY WAIT GONE")
RetractJournal = StrEnum("RetractJournal", "RETRACTED GONE")
RewindSession = StrEnum("RewindSession", "REWOUND CHANGED GONE")
SetSnapshots = StrEnum("SetSnapshots", "SET AHEAD UNLIKE CHANGED GONE")
ShareSession = StrEnum("ShareSession", "SHARED MISSING")
TagTurn = StrEnum("TagTurn", "TAGGED ELSEWHERE FAILED MISSING LOST BUSY")
UpdateObject = StrEnum("UpdateObject", "UPDATED CHANGED MISSING LARGE QUOTA")
UseSource = StrEnum("UseSource", "PRESENT LEFT MOVED ELSEWHERE EMPTY FAILED MISSING LOST BUSY")
WithdrawLane = StrEnum("WithdrawLane", "WITHDRAWN GONE")

# fmt: off
Alternative = (
    DeleteSession | DrainWorker | DropWorker | ExtendJournal | FailSession | Heartbeat | MarkOpen | PinOperation |
    ReleaseOperation | RenewOpening | RenewOperation | RetractJournal | ShareSession | WithdrawLane
)
# fmt: on
"""Of the scripts with two: what they were asked for is done, or not."""
