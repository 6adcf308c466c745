"""The plugins that come with Rondel, for type checkers."""

from .approval import ApprovalGate as ApprovalGate
from .attachments import Attachments as Attachments
from .auto_reply import AutoReply as AutoReply
from .clock import Clock as Clock
from .duration import Duration as Duration
from .facts import Facts as Facts
from .history import History as History
from .image_agent import ImageAgent as ImageAgent
from .inputs import Inputs as Inputs
from .limits import LimitsGuard as LimitsGuard
from .log import Log as Log
from .memory import MemoryAgent as MemoryAgent
from .position import Position as Position
from .repair import RepairArguments as RepairArguments
from .reroll import Reroll as Reroll
from .respond import Respond as Respond
from .retrieve import Retrieve as Retrieve
from .skills import Skills as Skills
from .soft_failures import SoftFailures as SoftFailures
from .telemetry import Telemetry as Telemetry
from .text_tools import TextTools as TextTools
from .todo import Todo as Todo
from .trim import Trim as Trim
