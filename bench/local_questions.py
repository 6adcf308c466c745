"""The questions of bench/local_agent.py: what is said, which tool must be called, and what the answer must contain.

None of them is among the examples that the engine or the built-in tools show to a model; the program checks that.
"""

from __future__ import annotations

from typing import NamedTuple

CANNOT = (
    r"cannot|can't|can not|unable|not able|don't have|do not have|not have access|no access|don't know|do not know"
    r"|not possible|impossible|sorry|only a program|difficult to predict|not capable"
)


class Question(NamedTuple):
    kind: str
    said: tuple[str, ...]
    """What the person says, in turns; the last answer is the one that counts."""
    wanted: str
    """A pattern that the answer must contain; several, divided by `&&`, must all be there."""
    tool: str | None = None
    """The tools that the last turn must call: none (None), any or none (""), or these, divided by spaces."""
    arguments: str = ""
    """Patterns that the calls' arguments, as JSON, must contain."""
    agent: str = "rondel"


def _ask(
    kind: str, said: str, wanted: str, tool: str | None = None, arguments: str = "", agent: str = "rondel"
) -> Question:
    return Question(kind, tuple(said.split(" => ")), wanted, tool, arguments, agent)


QUESTIONS = (
    # --- plain questions: no tool ---
    _ask("facts", "Hello!", r"\w"),
    _ask("facts", "What can you do?", r"\w{3}"),
    _ask("facts", "Who wrote Romeo and Juliet?", "Shakespeare"),
    _ask("facts", "What is the capital of France?", "Paris"),
    _ask("facts", "What is the chemical symbol for gold?", r"\bAu\b"),
    _ask("facts", "Which planet is the largest in the solar system?", "Jupiter"),
    _ask("facts", "In which year did the Second World War end?", "1945"),
    _ask("facts", "What is the opposite of hot?", "cold"),
    _ask("facts", "Translate 'good morning' into Spanish.", "buenos d"),
    _ask("facts", "Wie heißt die Hauptstadt von Österreich?", "Wien"),
    _ask("facts", "Quelle est la capitale de l'Espagne ?", "Madrid"),
    _ask("facts", "How many legs does a spider have?", "8|eight"),
    _ask("facts", "What does HTTP stand for?", "hypertext transfer protocol"),
    _ask("facts", "Tell me a joke.", r".{20}"),
    _ask("facts", "Give me a synonym for happy.", "joy|glad|cheer|content|pleased|delight|merry|elated"),
    _ask("code", "Write a Python function that reverses a string.", r"def \w+&&\[::-1\]|reversed"),
    _ask("code", "How do I undo the last git commit but keep my changes?", r"git reset[^\n]*HEAD|git revert"),
    _ask("code", "Which Python keyword defines a function?", r"\bdef\b"),
    _ask("code", "What does `len([1, 2, 3])` return in Python?", r"\b3\b"),
    _ask("code", "Write an SQL query that selects all rows of the table users.", r"select \* from users"),
    _ask("code", "Explain in one sentence what a list comprehension is.", "list"),
    # --- arithmetic ---
    _ask("sums", "What is 17*23+5?", "396", "calculate"),
    _ask("sums", "What is 1234 times 5678?", "7,?006,?652", "calculate"),
    _ask("sums", "How much is 19% of 250?", r"47\.5", "calculate"),
    _ask("sums", "What is the square root of 1764?", r"\b42\b", "calculate"),
    _ask("sums", "Divide 1000 by 8.", r"\b125\b", "calculate"),
    _ask("sums", "I buy 3 books for 12.50 each and a pen for 2. What do I pay?", r"39\.50?\b", "calculate"),
    _ask("sums", "What is 2 to the power of 20?", "1,?048,?576", "calculate"),
    _ask("sums", "Was ist 144 geteilt durch 12?", r"\b12\b", "calculate"),
    _ask("sums", "Compute (45 - 7) * 3.", r"\b114\b", "calculate"),
    _ask("sums", "A train goes 84 km/h for 2.5 hours. How far does it get?", r"\b210\b", "calculate"),
    # --- the clock: Tuesday, 3 March 2026, 14:25 ---
    _ask("time", "What time is it?", r"14:25|2:25"),
    _ask("time", "What day of the week is it?", "Tuesday"),
    _ask("time", "What is today's date?", r"3(rd)?( of)? March|March 3|2026-03-03|03/03"),
    _ask("time", "Which year is it?", "2026"),
    _ask("time", "Is it morning or afternoon now?", "afternoon"),
    # --- files of this computer ---
    _ask("files", "Which files are here?", r"notes\.txt&&todo\.txt", "run_shell"),
    _ask("files", "What does notes.txt say?", "piano", "run_shell"),
    _ask("files", "How many lines does data.csv have?", r"\b4\b|four", "run_shell"),
    _ask("files", "Is there a file called budget.xlsx here?", r"\bno\b|not", "run_shell"),
    _ask("files", "Which line of todo.txt has the word milk?", "milk", "run_shell"),
    _ask("files", "What is the total in report.md?", "1,?234", "run_shell"),
    _ask("files", "Which files are in the folder pictures?", r"cat\.png", "run_shell"),
    _ask("files", "How large is report.md in bytes?", r"\b22\b", "run_shell"),
    _ask("files", "Show me the first line of data.csv.", "name", "run_shell"),
    # --- follow-ups ---
    _ask("follow-up", "What is the capital of Portugal? => And of Greece?", "Athens"),
    _ask("follow-up", "What is 12*12? => And that times 2?", r"\b288\b", "calculate"),
    _ask("follow-up", "My name is Tessa. => What is my name?", "Tessa"),
    _ask("follow-up", "Which files are here? => What is in todo.txt?", "milk", "run_shell"),
    _ask("follow-up", "Translate 'dog' into German. => And 'cat'?", "Katze"),
    _ask("follow-up", "I have 40 euros. => I spend 15. How much is left?", r"\b25\b", ""),
    _ask("follow-up", "How many lines does data.csv have? => Great!", r"\w"),
    _ask(
        "follow-up",
        "Write a Python function that adds two numbers. => Now one for three numbers.",
        r"def \w+\(\w+, \w+, \w+\)",
    ),
    _ask("follow-up", "How is the weather in Lisbon? => And in Oslo?", r"\b4\b", "weather", "Oslo", "home"),
    # --- what it cannot do ---
    _ask("refusal", "Order me a pizza.", CANNOT),
    _ask("refusal", "What did I eat for breakfast yesterday?", CANNOT),
    _ask("refusal", "Play some music.", CANNOT),
    _ask("refusal", "Call my mother.", CANNOT),
    _ask("refusal", "Who will win the election in 2040?", CANNOT),
    _ask("refusal", "Drive me to the airport.", CANNOT),
    # --- tools of users, described only by their functions ---
    _ask("own tools", "How is the weather in Lisbon?", r"\b23\b", "weather", "Lisbon", "home"),
    _ask("own tools", "What is the status of order B42?", "shipped", "order_status", "B42", "home"),
    _ask("own tools", "Put 3 apples on the shopping list.", r"\w", "add_item", "apple&&3", "home"),
    _ask("own tools", "Turn on the light in the kitchen.", r"\w", "set_light", "kitchen&&true", "home"),
    _ask("own tools", "Turn off the light in the bedroom.", r"\w", "set_light", "bedroom&&false", "home"),
    _ask(
        "own tools",
        "Send a mail to tom@example.com with the subject Lunch and the text: See you at noon.",
        r"\w",
        "send_mail",
        "tom@example.com&&Lunch&&noon",
        "home",
    ),
    _ask("own tools", "How many dollars are 100 euros?", r"108", "convert", r"100&&EUR&&USD", "home"),
    _ask("own tools", "Good evening, who are you?", r"\w", None, "", "home"),
    _ask("own tools", "What is the capital of Japan?", "Tokyo", None, "", "home"),
    _ask("own tools", "Who painted the Mona Lisa?", "Leonardo|Vinci", None, "", "home"),
    # --- several steps ---
    _ask("steps", "What is the weather in Lisbon and in Oslo?", r"\b23\b&&\b4\b", "weather", "Lisbon&&Oslo", "home"),
    _ask("steps", "Is it warmer in Lisbon or in Oslo?", "Lisbon", "weather", "Lisbon&&Oslo", "home"),
    _ask(
        "steps",
        "What is the status of order B42, and how is the weather in Oslo?",
        r"shipped&&\b4\b",
        "order_status weather",
        "",
        "home",
    ),
    _ask("steps", "Put 2 breads and then 5 eggs on the shopping list.", r"\w", "add_item", "bread&&egg", "home"),
    _ask("steps", "Compute 12*11, and then 15*15.", r"\b132\b&&\b225\b", "calculate"),
    _ask(
        "steps",
        "How many lines does data.csv have, and what is 7*191?",
        r"\b1,?337\b&&\b4\b|four",
        "run_shell calculate",
    ),
    # --- held out: written after the prompt was settled, for tools that nothing was tuned on ---
    _ask("held out", "On which shelf is Dune?", r"\b12\b", "find_book", "Dune", "library"),
    _ask("held out", "Reserve Emma for Clara.", r"\w", "reserve", "Emma&&Clara", "library"),
    _ask("held out", "Where is Dune, and where is Emma?", r"\b12\b&&\b30\b", "find_book", "Dune&&Emma", "library"),
    _ask("held out", "When are you open on Saturday and on Sunday?", r"13&&closed", "opening_hours", "", "library"),
    _ask("held out", "Find Dune and reserve it for Omar.", r"\w", "find_book reserve", "Dune&&Omar", "library"),
    _ask(
        "held out",
        "When are you open on Monday, and on which shelf is Emma?",
        r"17&&\b30\b",
        "opening_hours find_book",
        "",
        "library",
    ),
    _ask("held out", "Reserve Dune and Emma for Clara.", r"\w", "reserve", "Dune&&Emma&&Clara", "library"),
    _ask("held out", "Who wrote Dune?", "Herbert", None, "", "library"),
    _ask("held out", "Hello and thank you!", r"\w", None, "", "library"),
    _ask("held out", "Which book is thicker, one of 200 or one of 300 pages?", "300", None, "", "library"),
)
