"""Whether an answer comes from the conversation that was sent, and from no other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kakeya import AsyncClient
from tests.soak.histories_http.asking import Answer, Ask, Refusal
from tests.soak.histories_http.ground import Records
from tests.soak.histories_http.oracle import Session, difference, num_head_tokens, text_of
from tests.soak.report import Tally

STATES = ("continued", "forked", "new")
NEW = {"kakeya-session": "new"}
BINDS = "kakeya-session-id"
OTHER_TENANT = "another tenant"
_OVERFLOWS = "context_length_exceeded"
_MAX_SHOWN = 1_500


@dataclass
class Judge:
    """Looks at all answers, and asks a fresh session for some of them again.

    Attributes:
        clients: of the runtime itself, by tenant.
        num_unseen: answers whose session was gone when it was looked at, or that name none.
        num_refused: requests whose messages fit into no session.
        num_fresh: answers that a fresh session was asked for, too.
        num_denied: answers to another tenant for which a session was found that cannot be gone on with. Its own may end
            in that moment.
    """

    records: Records
    clients: Mapping[str, AsyncClient]
    tally: Tally
    num_unseen: int = 0
    num_refused: int = 0
    num_fresh: int = 0
    num_denied: int = 0

    async def look(self, ask: Ask, answer: Answer | Refusal, *, asks_again: bool) -> None:
        """Counts it; what must not be is a violation.

        Args:
            asks_again: a fresh session is asked, too.
        """
        if isinstance(answer, Refusal):
            self.tally.count(ask.kind, f"status {answer.status}", answer.code)
            self.num_refused += answer.code == _OVERFLOWS
            faults = [*_faults_of_refusal(ask, answer)]
        else:
            self.tally.count(ask.kind, answer.session["state"], answer.session.get("why", "nothing said"))
            self.num_denied += ask.kind == OTHER_TENANT and answer.session.get("why") == "gone"
            faults = [*_faults_of_header(ask, answer)]
            if not faults:
                faults += await self._faults_of_session(ask, answer, asks_again=asks_again)
        for fault in faults:
            self._violate(fault, ask, answer)

    async def _faults_of_session(self, ask: Ask, answer: Answer, *, asks_again: bool) -> list[str]:
        session_id = answer.session.get("id")
        session = await self.records.session(session_id) if session_id else None
        if session is None:
            self.num_unseen += 1
            return []
        faults = [*faults_of_history(ask, answer, session)]
        if asks_again and answer.usage is not None and not faults:
            self.num_fresh += 1
            if fault := await self._difference_to_fresh(ask, answer, session):
                faults.append(fault)
        return faults

    async def _difference_to_fresh(self, ask: Ask, answer: Answer, session: Session) -> str:
        """Of what a session says that has been told the same tokens and nothing else."""
        client = self.clients[ask.tenant]
        async with await client.create_session(
            model=ask.model,
            on_overflow="refuse" if session.on_overflow == "refuse" else "evict",
            eos_token_ids=session.eos_token_ids,
            sink=session.sink,
            window=session.window,
            wait_for_capacity_seconds=60.0,
        ) as fresh:
            await fresh.append(session.token_ids[: num_before(answer)])
            sampling = {name: ask.fields[name] for name in ("max_tokens", "temperature", "seed")}
            token_ids = await fresh.generate(**sampling).all()
        text = text_of(token_ids)
        is_same = text.startswith(answer.content) if is_cut(ask, answer) else text == answer.content
        return "" if is_same else f"a fresh session with the same tokens says {text!r}"

    def _violate(self, fault: str, ask: Ask, answer: Answer | Refusal) -> None:
        self.tally.violate(f"{fault}: {answer}; {ask}"[:_MAX_SHOWN], kind=f"{ask.kind}: {fault[:40]}")


def num_before(answer: Answer) -> int:
    """Tokens of the history before the answer, as its header says."""
    return int(answer.session["appended"]) + int(answer.session["reused"])


def _faults_of_refusal(ask: Ask, refusal: Refusal) -> Iterator[str]:
    if refusal.status == 400 and refusal.code == _OVERFLOWS:
        return
    if not (refusal.status == 409 and BINDS in ask.headers):
        yield f"refused with {refusal.status}"


def _faults_of_header(ask: Ask, answer: Answer) -> Iterator[str]:
    said, usage = answer.session, answer.usage
    if said["state"] not in STATES:
        yield f"its header says {said}"
        return
    reused = int(said["reused"])
    if (said["state"] == "new") != (reused == 0):
        yield f"{said['state']} with {reused} tokens reused"
    if ask.headers == NEW and said["state"] != "new" and said["why"] != "head":  # what all begin with is no history
        yield f"{said['state']}, and a new one was asked for"
    if usage is None:  # its client has left
        return
    if usage["prompt_tokens"] != num_before(answer):
        yield f"{num_before(answer)} tokens before the answer, and {usage['prompt_tokens']} in the usage"
    if usage["prompt_tokens_details"]["cached_tokens"] != reused:
        yield f"{reused} tokens reused, and {usage['prompt_tokens_details']['cached_tokens']} cached"
    if (of_usage := usage["kakeya"]["session"]) != {**said, "appended": int(said["appended"]), "reused": reused}:
        yield f"another session in the usage: {of_usage}"


def faults_of_history(ask: Ask, answer: Answer, session: Session) -> Iterator[str]:
    """What is wrong with the session that an answer came from."""
    num_prompt_tokens = num_before(answer)
    if (session.tenant, session.model) != (ask.tenant, ask.model):
        yield f"the session is one of {session.tenant} with {session.model}"
        return
    if session.on_overflow != ask.on_overflow:
        yield f"the session would {session.on_overflow} what overflows"
    if len(session.token_ids) < num_prompt_tokens:
        yield f"the session has {len(session.token_ids)} tokens, and {num_prompt_tokens} before the answer"
        return
    history = session.token_ids[:num_prompt_tokens]
    if different := difference(ask.messages, history):
        yield f"another conversation: {different}"
    elif (num_head := num_head_tokens(history, ask.messages)) > session.sink:
        yield f"{num_head} tokens of the head, and {session.sink} are kept"
    if answer.usage is not None and ask.num_choices == 1 and session.seed == ask.fields["seed"]:
        yield from _faults_of_answer(ask, answer, session, answer.usage["completion_tokens"])


def _faults_of_answer(ask: Ask, answer: Answer, session: Session, num_tokens: int) -> Iterator[str]:
    """Of one that was not cut, and that is the last that the session gave."""
    start = num_before(answer)
    text = text_of(session.token_ids[start : start + num_tokens])
    if not is_cut(ask, answer) and text != answer.content:
        yield f"the session has {text!r} as its answer"


def is_cut(ask: Ask, answer: Answer) -> bool:
    """Perhaps: by a stop text."""
    return "stop" in ask.fields and answer.finish_reason == "stop"
