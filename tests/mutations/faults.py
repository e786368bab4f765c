"""Faults that some test has to notice, each a few words changed in one file."""

from dataclasses import dataclass

_ROUTER = "services/router/src/kakeya_router"
_LUA = f"{_ROUTER}/store/lua"
_SHIM = "services/http_shim/src/kakeya_http_shim"
_SUFFIXES = "sdks/python/src/kakeya/text/suffixes"
_ENGINE = "services/worker/src/kakeya_worker/engine"
_GGUF, _GGUF_MODELS = "shared/src/kakeya_shared/gguf", "services/worker/src/kakeya_worker/models/gguf"
_EXACT = "services/worker/src/kakeya_worker/torch_backend/exact"
_T_ROUTER, _T_SHIM, _T_WORKER = "tests/unit/router", "tests/unit/http_shim", "tests/unit/worker"


@dataclass(frozen=True)
class Fault:
    """What is changed.

    Attributes:
        name: what it does to the product, in words.
        file: from the repository on.
        old: what stands there, once.
        new: what stands there instead.
        tests: those that are to notice it; one is enough.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _lua(name: str, script: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"{_LUA}/{script}.lua", old, new, tuple(f"{_T_ROUTER}/{test}" for test in tests))


def _router(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"{_ROUTER}/{file}.py", old, new, tuple(f"{_T_ROUTER}/{test}" for test in tests))


def _shim(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"{_SHIM}/{file}.py", old, new, tuple(f"{_T_SHIM}/{test}" for test in tests))


def _suffixes(name: str, file: str, old: str, new: str) -> Fault:
    return Fault(name, f"{_SUFFIXES}/{file}.py", old, new, ("tests/unit/sdk/text/test_suffixes.py",))


def _gguf(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"{_GGUF}/{file}.py", old, new, tuple(f"tests/unit/shared/gguf/{test}" for test in tests))


def _gguf_model(name: str, file: str, old: str, new: str, test: str) -> Fault:
    return Fault(name, f"{_GGUF_MODELS}/{file}.py", old, new, (f"{_T_WORKER}/models/gguf/{test}",))


def _exact(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(
        name, f"{_EXACT}/{file}.py", old, new, tuple(f"{_T_WORKER}/torch_backend/exact/{test}" for test in tests)
    )


def _engine(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"{_ENGINE}/{file}.py", old, new, tuple(f"{_T_WORKER}/{test}" for test in tests))


SCRIPTS = "store/test_scripts.py"
HISTORIES = "tests/soak/histories_http/test_histories_http.py::test_no_session_holds_another_conversation"


def _matcher(name: str, file: str, old: str, new: str) -> Fault:
    """Of what says which conversations are the same: the proof that knows nothing of it is to notice."""
    return Fault(name, f"{_SHIM}/conversations/{file}.py", old, new, (HISTORIES,))


FAULTS = (
    # Compare-and-set, fences, busy flags in Redis.
    _lua(
        "an operation begins on a session that has moved",
        "operations/begin_operation",
        "if record[2] ~= arg.incarnation then",
        "if false then",
        SCRIPTS,
        "lanes/test_moving.py",
    ),
    _lua(
        "a worker that was replaced takes its id back",
        "fleet/join_worker",
        "and arg.again == '1'",
        "and arg.again == 'x'",
        SCRIPTS,
        "workers/test_workers.py",
    ),
    Fault(
        "a worker whose lease has lapsed answers on",
        "services/worker/src/kakeya_worker/service/verifier_service.py",
        "await self._lease.check()",
        "pass",
        (f"{_T_WORKER}/joining/test_lease.py",),
    ),
    _lua(
        "two operations run on one session",
        "operations/begin_operation",
        "if lease_until and (arg.may_take_over",
        "if false and lease_until and (arg.may_take_over",
        SCRIPTS,
        "sessions/test_sessions.py",
    ),
    _lua(
        "an operation ends under an old epoch",
        "operations/end_operation",
        "operation[1] ~= arg.claim or record[1] ~= arg.epoch",
        "operation[1] ~= arg.claim",
        SCRIPTS,
    ),
    _lua(
        "somebody else's operation is ended",
        "operations/end_operation",
        "operation[1] ~= arg.claim or record[1] ~= arg.epoch",
        "record[1] ~= arg.epoch",
        SCRIPTS,
    ),
    _lua(
        "a history gets shorter without a rewind",
        "operations/end_operation",
        "if history_length < tonumber(record[3]) then",
        "if history_length < 0 then",
        SCRIPTS,
        "operations/test_journal.py",
    ),
    _lua(
        "a router that was fenced goes on journaling",
        "operations/extend_journal",
        "if operation[1] ~= arg.claim or journal.epoch ~= arg.epoch then",
        "if operation[1] ~= arg.claim then",
        SCRIPTS,
    ),
    _router(
        "of several calls of a script one gets what is another's",
        "store/scripts",
        "local t = {} while i <= n do",
        "local t = {} while all[i] do",
        "store/test_script_calls.py",
    ),
    _router(
        "a part of what is written together fails with all of it",
        "store/connection",
        "answers = await self._apart(script.text, [_evalsha(script, *call) for call in calls])",
        "answers = [found[0]] * len(calls)",
        "operations/test_journal_pipeline.py",
    ),
    _router(
        "a request that comes again waits for the lane that it has",
        "sessions/sessions",
        "is_asked = len(wanted.pools) > 1 or not any(worker.has_room for worker in fitting)",
        "is_asked = len(wanted.pools) > 1",
        "sessions/test_sessions.py",
    ),
    _router(
        "a request that comes again meets the quota of another pool",
        "sessions/sessions",
        "is_asked = len(wanted.pools) > 1 or not any(worker.has_room for worker in fitting)",
        "is_asked = not any(worker.has_room for worker in fitting)",
        "access/test_quota.py",
    ),
    _router(
        "a worker that is just closing a lane is left alone for a second",
        "lanes/waiter",
        "seconds, self._full_seconds = self._full_seconds, min(2 * self._full_seconds, _PAUSE_SECONDS)",
        "pass",
        "lanes/test_queue.py",
    ),
    _router(
        "an answer to a write that was given up counts",
        "operations/journal",
        "        if part is not self._part:\n            return\n",
        "",
        "operations/test_journal.py",
    ),
    _router(
        "an operation is not told that its lease is another's",
        "operations/renewals",
        "            operation.call.cancel()\n",
        "            pass\n",
        "operations/test_renewals.py",
    ),
    _router(
        "the lease of an operation that is over is not its router's any more",
        "operations/renewals",
        "                    if operation in self._running:\n                        self._hear(operation, outcome)",
        "                    self._hear(operation, outcome)",
        "operations/test_renewals.py",
    ),
    _router(
        "tokens are shown of a session that another router has",
        "workers/answer_streams",
        "while self._tokens and not isinstance(self._error, asyncio.CancelledError):",
        "while self._tokens:",
        "workers/test_answer_streams.py",
    ),
    _lua(
        "a lease is renewed that another has taken",
        "operations/renew_operation",
        "if not holds() or redis.call",
        "if redis.call",
        SCRIPTS,
        "operations/test_takeover.py",
    ),
    _lua(
        "a list of snapshots is overwritten that has changed",
        "operations/set_snapshots",
        "(record[3] or '') ~= arg.known or (record[7] or '') ~= arg.known_inherited",
        "(record[7] or '') ~= arg.known_inherited",
        SCRIPTS,
    ),
    _lua(
        "a snapshot trims the journal beyond what an operation needs",
        "operations/set_snapshots",
        "trim_journal(math.min(tonumber(arg.journal_start), tonumber(record[5] or 0)), true)",
        "trim_journal(tonumber(arg.journal_start), true)",
        SCRIPTS,
        "operations/test_journal.py",
    ),
    _lua(
        "boundaries survive a rewind to before them",
        "operations/rewind_session",
        "if tonumber(boundary) <= length then",
        "if true then",
        SCRIPTS,
        "sessions/test_rewinds.py",
    ),
    _lua(
        "a late tag names another answer of that length",
        "sessions/tag_turn",
        "elseif arg.op_id == record[2] then",
        "else",
        SCRIPTS,
        "sessions/test_tags.py",
    ),
    _lua(
        "the end of an answer is tagged before it has ended",
        "sessions/tag_turn",
        "if arg.kind == 'end' and redis.call('HGET', key.operation, 'op_id') == arg.op_id then",
        "if false then",
        SCRIPTS,
        "sessions/test_tags.py",
    ),
    _lua(
        "tags survive a rewind to before them",
        "prelude/tags",
        "if each.length > length then",
        "if false then",
        SCRIPTS,
        "sessions/test_tags.py",
    ),
    _router(
        "a late rewind takes back what another operation has said",
        "sessions/rewinding",
        "behind=op_id",
        'behind=""',
        "sessions/test_tags.py",
    ),
    _shim(
        "a cut answer's rewind does not name its operation",
        "conversations/live_turn",
        'op_id=self.generation.op_id or ""',
        'op_id=""',
        "conversations/test_live_chats.py",
    ),
    _lua(
        "tags outlive their session",
        "prelude/session",
        "  forget_tags()\n",
        "",
        SCRIPTS,
        "sessions/test_tags.py",
    ),
    _lua(
        "a fork has tags from beyond where it begins",
        "sessions/reserve_session",
        "if each.length <= length and not (is_of_head",
        "if not (is_of_head",
        SCRIPTS,
        "sessions/test_tags.py",
    ),
    _lua(
        "a head is found in one of its forks",
        "sessions/reserve_session",
        " and not (is_of_head and each.kind == 'head')",
        "",
        SCRIPTS,
        "sessions/test_keeping.py",
    ),
    _lua(
        "a session makes room before its answer has ended",
        "prelude/session",
        "if record[2] == '1' and (record[3] or '') ~= '' then",
        "if record[2] == '1' then",
        SCRIPTS,
        "lanes/test_disposable.py",
    ),
    _lua(
        "a session that is not disposable makes room at once",
        "prelude/session",
        "if record[2] == '1' and (record[3] or '') ~= '' then",
        "if (record[3] or '') ~= '' then",
        SCRIPTS,
        "lanes/test_disposable.py",
    ),
    _lua(
        "of a place one fork too many is closed where two routers close at once",
        "sessions/begin_close",
        "group_range(prefix)) > tonumber(arg.limit)",
        "group_range(prefix)) > 0",
        SCRIPTS,
        "sessions/test_keeping.py",
    ),
    _lua(
        "a session of a group that has ended is counted",
        "prelude/session",
        "  be_busy()\n  leave_lists()\n",
        "  be_busy()\n",
        SCRIPTS,
        "sessions/test_keeping.py",
    ),
    _lua(
        "the newest fork of a place is closed",
        "sessions/find_surplus",
        "if idle_since and session_id ~= arg.spared then",
        "if idle_since then",
        "store/sessions/test_kept.py",
    ),
    _lua(
        "a file that heirs need is not counted",
        "prelude/session",
        "num_bytes - (has_heir(file) and 0 or size)",
        "num_bytes - size",
        "store/sessions/test_kept.py",
    ),
    _lua(
        "a parked session is closed although its pool keeps little",
        "sessions/begin_close",
        "if busy or not is_beyond() then",
        "if busy then",
        SCRIPTS,
    ),
    _router(
        "a poor tenant's sessions make room for a rich one first",
        "lanes/idle_lanes",
        "return owner >= taker + num_more * record.reserved_bytes",
        "return True",
        "lanes/test_disposable.py",
    ),
    _router(
        "a tenant at its quota gives up the source of its fork",
        "lanes/idle_lanes",
        "is_meant = record.session_id != spared and",
        "is_meant =",
        "lanes/test_disposable.py",
    ),
    _router(
        "a tag finds the session of another tenant",
        "store/keys",
        'tagged:{tenant}:{model}"',
        'tagged:{model}"',
        "sessions/test_tags.py",
    ),
    _router(
        "tags that an older router has left behind a rewind are found",
        "store/sessions/tag_store",
        'if not values or held.get("num_rewinds") != values.get("num_rewinds", "0"):',
        "if not values:",
        "sessions/test_tags.py",
    ),
    _router(
        "a session in the middle of an answer is found as idle",
        "sessions/tagging",
        "is_idle_end=is_end and not tagged.is_busy",
        "is_idle_end=is_end",
        "sessions/test_tags.py",
    ),
    _lua(
        "an operation that changed nothing hides the one before",
        "operations/release_operation",
        "if before then",
        "if false then",
        SCRIPTS,
        "operations/test_generate.py",
        "sessions/test_rewinds.py",
    ),
    _lua(
        "who comes back overtakes the queue",
        "lanes/resume_session",
        "if not is_first(tenant, now_ms()) then",
        "if false then",
        SCRIPTS,
        "lanes/test_queue.py",
        "lanes/test_returning.py",
    ),
    _lua(
        "a session is moved on which something has happened",
        "lanes/move_session",
        "or tonumber(record[4] or 0) <= now_ms() or (record[5] or '0') ~= arg.operation_number",
        "or tonumber(record[4] or 0) <= now_ms()",
        SCRIPTS,
        "lanes/test_moving.py",
    ),
    _lua(
        "a move leaves the old lane in the ledger",
        "lanes/move_session",
        "give_back()\n",
        "\n",
        SCRIPTS,
        "lanes/test_moving.py",
    ),
    _lua(
        "a session opens that was given up",
        "sessions/mark_open",
        "redis.call('HGET', key.operation, 'claim') ~= arg.claim",
        "false",
        SCRIPTS,
        "sessions/test_given_up.py",
    ),
    _lua(
        "a busy session expires",
        "sessions/begin_close",
        "tonumber(expires_at) > now or busy then",
        "tonumber(expires_at) > now then",
        SCRIPTS,
        "sessions/test_expiry.py",
    ),
    _lua(
        "a closed session keeps its bytes",
        "sessions/delete_session",
        "give_back()\n",
        "\n",
        SCRIPTS,
        "sessions/test_sessions.py",
    ),
    _lua(
        "the heartbeat of an old incarnation counts",
        "fleet/heartbeat",
        "if redis.call('HGET', key.worker, 'incarnation') ~= arg.incarnation then",
        "if false then",
        SCRIPTS,
        "workers/test_workers.py",
    ),
    _lua(
        "what a worker says of a lane under an old epoch counts",
        "fleet/report_lane",
        " or epoch ~= arg.epoch then",
        " then",
        SCRIPTS,
        "workers/test_workers.py",
    ),
    _lua(
        "a worker is dropped whose lease holds",
        "fleet/drop_worker",
        "if arg.lapsed_only == '1' and",
        "if false and",
        SCRIPTS,
        "workers/test_workers.py",
    ),
    # The ledger and the queue.
    _lua(
        "the last lane is never given",
        "sessions/reserve_session",
        "if worker[2] - worker[3] < tonumber(bytes)",
        "if worker[2] - worker[3] <= tonumber(bytes)",
        SCRIPTS,
        "lanes/test_queue.py",
    ),
    _lua(
        "a newcomer overtakes the queue",
        "sessions/reserve_session",
        "if not is_first(tenant, now) then",
        "if false then",
        SCRIPTS,
        "lanes/test_queue.py",
    ),
    _lua(
        "the tenant that holds the most comes first",
        "prelude/queue",
        "return one[1] < other[1]",
        "return one[1] > other[1]",
        SCRIPTS,
        "lanes/test_fairness.py",
    ),
    _lua(
        "a full queue forgets whose waiters are the most",
        "queue/enter_queue",
        "counts[owner] = (counts[owner] or 0) + 1",
        "counts[owner] = 1",
        SCRIPTS,
        "lanes/test_fairness.py",
    ),
    _lua(
        "a tenant parks another's session that holds no more than it",
        "prelude/session",
        "return owner == arg.wanted_by or held[owner] >= held[arg.wanted_by] + 2 * record[2]",
        "return true",
        SCRIPTS,
        "lanes/test_parking.py",
        "lanes/test_close_idle.py",
    ),
    _lua(
        "a new lease has the epoch of the one before",
        "prelude/session",
        "math.max(latest + 1, generation * 2^41 + now_ms())",
        "record[1]",
        SCRIPTS,
        "lanes/test_returning.py",
    ),
    _lua(
        "a tenant's quota counts no session",
        "prelude/ledger",
        "return limit > 0 and (redis.call('HGET', key.usage, field) or 0) + amount > limit",
        "return false",
        SCRIPTS,
        "access/test_quota.py",
    ),
    # Who may do what, and what a resumed answer is held to.
    _router(
        "a session is everybody's",
        "access/callers",
        "return record.tenant == current().tenant",
        "return True",
        "access/test_foreign_sessions.py",
    ),
    _router(
        "a key is good for services that it has no scope for",
        "access/access_guard",
        "if scope not in scopes and method",
        "if False and method",
        "access/test_keys.py",
    ),
    _router(
        "another's tokens are taken for those of the operation",
        "operations/generate",
        "if known[:num_common] != seen[:num_common]:",
        "if False:",
        "operations/test_recovery.py",
    ),
    _router(
        "an answer that is gone on with gets another seed",
        "operations/generate",
        "sampling=replace(request.sampling, seed=record.operation_seed)",
        "sampling=request.sampling",
        "operations/test_takeover.py",
        "operations/test_recovery.py",
        "operations/test_turn.py",
    ),
    _router(
        "a turn that comes again appends again",
        "operations/turn",
        "return operation.journal.length < operation.record.operation_start",
        "return True",
        "operations/test_turn.py",
    ),
    _lua(
        "a turn stands behind another that came to its place first",
        "operations/begin_operation",
        "tonumber(arg.at_length) == tonumber(start_length)",
        "true",
        "sessions/test_turns.py",
    ),
    _router(
        "a session is opened where a feature that it needs is not",
        "lanes/wanted",
        "return not worker.lacks(self.features) and self.would_be_served_by(worker)",
        "return self.would_be_served_by(worker)",
        "sessions/test_turns.py",
        "workers/test_features.py",
    ),
    _router(
        "a history that the client did not expect is gone on with",
        "operations/generate",
        "            if request.expected_history_length is not None:\n",
        "            if False:\n",
        "operations/test_generate.py",
    ),
    # What stands behind an answer.
    _suffixes(
        "what a template makes of calls and thoughts further up is not found out",
        "suffixes",
        "others = histories.OTHERS if is_new else ()",
        "others = ()",
    ),
    _suffixes(
        "a template that changes its ways in a long conversation is not found out",
        "suffixes",
        "return len(wanted.messages).bit_length()",
        "return 0",
    ),
    _suffixes(
        "a head decides for another head",
        "wanted",
        "self.head, self.tools, self.variables",
        "self.tools",
    ),
    _suffixes(
        "a template that repeats old messages has suffixes",
        "suffix",
        "not any(text.casefold() in behind for text in histories.OLD_TEXTS)",
        "True",
    ),
    _suffixes(
        "what depends on the answer is taken for a suffix",
        "suffix",
        "if len(found) == len(markers) and len({self.meant(behind) for _, behind in found}) == 1:",
        "if len(found) == len(markers):",
    ),
    # The HTTP shim.
    _shim(
        "a stop text is in the answer",
        "text/stop_texts",
        "return text[: end - len(self.found)]",
        "return text[:end]",
        "text/test_stop_texts.py",
    ),
    _shim(
        "a stop text that begins anew inside itself is missed",
        "text/stop_texts",
        "        num_matched = borders[num_matched]\n",
        "        num_matched = 0\n",
        "text/test_stop_texts.py",
    ),
    _shim(
        "two Host headers are as good as one",
        "middleware/host_check",
        "if len(values) == 1 else None",
        "if values else None",
        "middleware/test_host_check.py",
    ),
    _shim(
        "a browser's preflight needs a key",
        "middleware/key_check",
        ' and scope["method"] != "OPTIONS"',
        "",
        "middleware/test_key_check.py",
    ),
    _shim(
        "a place is lost when a request leaves as it gets it",
        "routes/admission",
        "        if handed_over.done():  # the place came in the same moment: on with it\n            self._leave()\n",
        "        if handed_over.done():\n            pass\n",
        "routes/test_admission.py",
    ),
    _shim(
        "one request more waits than may",
        "routes/admission",
        "elif len(self._waiters) >= self._queue_length:",
        "elif len(self._waiters) > self._queue_length:",
        "routes/test_admission.py",
    ),
    _shim(
        "usage tells what is retained for what is evicted",
        "answers/usage",
        "evicted=longest.history_length - longest.num_retained",
        "evicted=longest.num_retained",
        "routes/test_chat.py",
        "routes/test_completions.py",
    ),
    # The worker.
    _engine(
        "a row commits where the lane does not end",
        "lanes/lane",
        "if row.start != self.length:",
        "if False:",
        "engine/lanes/test_lane.py",
    ),
    _engine(
        "a fork forgets which tokens its lane holds",
        "lanes/lane",
        "        lane.history_digest = self.history_digest\n",
        "",
        "engine/lanes/test_lane.py",
        "engine/test_forks.py",
    ),
    _engine(
        "another history of the same length passes",
        "lanes/lane",
        "if None not in (digest, self.history_digest) and digest != self.history_digest:",
        "if False:",
        "engine/lanes/test_lane.py",
        "engine/test_engine.py",
    ),
    _engine(
        "a lane obeys an old lease",
        "lanes/lane_table",
        "if occupant.epoch != epoch:",
        "if False:",
        "engine/test_engine.py",
        "service/test_verifier_service.py",
    ),
    _engine(
        "penalties come before the bias, top_p before top_k",
        "sampling/sampling",
        "STEPS = (_logit_bias, _repetition_penalty, _penalties, _temperature, _top_k, _top_p, _min_p)",
        "STEPS = (_penalties, _repetition_penalty, _logit_bias, _temperature, _top_p, _top_k, _min_p)",
        "engine/sampling/test_vectors.py",
        "engine/sampling/test_sampling.py",
    ),
    _engine(
        "an end comes a token too early",
        "lanes/operation",
        "self.ignores_eos or self.num_generated < self.min_tokens",
        "self.ignores_eos or self.num_generated < self.min_tokens - 1",
        "engine/test_ends.py",
    ),
    _engine(
        "a grammar does not hold what is chosen",
        "sampling/sampling",
        "scores[~allowed] = -np.inf",
        "pass",
        "engine/sampling/test_sampling.py",
    ),
    _engine(
        "an end waits for the least number of tokens where a grammar leaves nothing else",
        "lanes/operation",
        "if allows.ends_only:",
        "if False:",
        "engine/test_constrained.py",
    ),
    _engine(
        "a draft is taken that is not what would have been chosen",
        "steps/verification",
        "if row.token_ids[number + 1 : number + 2] != choice[:1]:",
        "if number + 1 == len(row.token_ids):",
        "engine/test_drafts.py",
    ),
    _engine(
        "the token behind the drafts is not drawn",
        "steps/verification",
        "generate.next_choice = choice",
        "generate.next_choice = (row.token_ids[-1], None)",
        "engine/test_drafts.py",
    ),
    _engine(
        "a draft is held against the draw of the place before",
        "steps/verification",
        "row.start + number + 1)",
        "row.start + number)",
        "engine/test_drafts.py",
    ),
    _engine(
        "a lane ends with a draft that was wrong",
        "steps/verification",
        "if right[generate] != row:",
        "if False:",
        "engine/test_drafts.py",
    ),
    _engine(
        "tokens come behind an end, where they were drafted",
        "steps/verification",
        "if generate.own_finish is not None or not _can_choose",
        "if not _can_choose",
        "engine/test_drafts.py",
    ),
    _engine(
        "drafts wait for the mask of another",
        "steps/verification",
        "    generate.constraint.wait(max(0.0, late_at - time.monotonic()))\n    return generate.constraint.is_ready",
        "    return True",
        "engine/test_drafts.py",
    ),
    _engine(
        "drafts run over who reads slowly",
        "steps/drafting",
        "        MAX_UNREAD_TOKENS - generate.num_unread,\n",
        "",
        "engine/test_drafts.py",
    ),
    _engine(
        "drafts overflow a lane that may not forget",
        "steps/drafting",
        "*(() if room is None else (room - 1,)),",
        "",
        "engine/test_drafts.py",
    ),
    _engine(
        "a session drafts from what was taken back",
        "lanes/lane_copies",
        "                self._proposers.restart(occupant.drafter, lane.held_token_ids)\n",
        "                pass\n",
        "engine/test_drafts.py",
    ),
    _engine(
        "a proposer that fails is asked again",
        "speculation/drafter",
        "        self._proposer = None\n",
        "        pass\n",
        "engine/speculation/test_proposers.py",
    ),
    _engine(
        "drafts that are no tokens of the model are computed",
        "speculation/drafter",
        "return 0 <= token_id < self._vocab_size",
        "return True",
        "engine/speculation/test_proposers.py",
    ),
    _engine(
        "a draft model takes what it drafted for what came",
        "speculation/draft_lane",
        "takewhile(lambda pair: pair[0] == pair[1], pairs)",
        "takewhile(lambda pair: True, pairs)",
        "engine/speculation/test_draft_lane.py",
    ),
    _engine(
        "a draft model draws by another index",
        "speculation/choosing",
        "self.history_index + len(drafts)",
        "self.history_index + len(drafts) + 1",
        "engine/speculation/test_choosing.py",
    ),
    _engine(
        "a draft model's passes have no price",
        "speculation/draft_model",
        "costs.step_seconds / num_sessions + token_seconds",
        "token_seconds",
        "engine/steps/test_drafting.py",
    ),
    _engine(
        "a draft model takes up all of a long history",
        "speculation/draft_lane",
        "if len(self._behind) > self._retention.capacity:",
        "if False:",
        "engine/speculation/test_draft_lane.py",
    ),
    Fault(
        "a mask behind a draft is the one before it",
        "services/worker/src/kakeya_worker/grammars/constraint.py",
        "zip(goes_on, words[1:], strict=True)",
        "zip(goes_on, words[:-1], strict=True)",
        (f"{_T_WORKER}/grammars/test_foreseen_masks.py",),
    ),
    _lua(
        "tokens that do not follow the journal end an operation",
        "operations/end_operation",
        "known < 0 or ",
        "",
        SCRIPTS,
        "store/test_set_back.py",
    ),
    _lua(
        "a session forgets its drafts of before",
        "operations/end_operation",
        "redis.call('HINCRBY', key.session, 'drafted_tokens', arg.drafted)",
        "redis.call('HSET', key.session, 'drafted_tokens', arg.drafted)",
        "operations/test_generate.py",
    ),
    _engine(
        "a session pays for another's drafts",
        "speculation/depths",
        "while added and seconds > MAX_SLOWDOWN * step_seconds * min(gains):",
        "while False:",
        "engine/speculation/test_depths.py",
    ),
    _engine(
        "a mask that is late is waited for",
        "steps/masks",
        "return ready if ready or has_others else generates",
        "return generates",
        "engine/test_constrained.py",
    ),
    _engine(
        "stop sequences are looked for before the least number of tokens",
        "lanes/operation",
        "if self.num_generated >= self.min_tokens and",
        "if",
        "engine/test_ends.py",
    ),
    _engine(
        "the draw has a round too few",
        "sampling/philox",
        "_ROUNDS = 10",
        "_ROUNDS = 9",
        "engine/sampling/test_sampling.py",
        "engine/sampling/test_vectors.py",
    ),
    _engine(
        "a token is forgotten before it is journaled",
        "lanes/lane_table",
        "while len(self._token_ids) > max(0, self._end - journaled_length):",
        "while len(self._token_ids) > max(0, self._end - journaled_length - 1):",
        "engine/lanes/test_generated_tail.py",
    ),
    Fault(
        "a client that leaves does not stop its answer",
        "services/worker/src/kakeya_worker/service/verifier_service.py",
        "            engine.cancel(generate)\n",
        "            pass\n",
        (f"{_T_WORKER}/service/test_verifier_service.py",),
    ),
    Fault(
        "a damaged snapshot is restored",
        "services/worker/src/kakeya_worker/snapshots/snapshot_file.py",
        "if {name: each.hexdigest() for name, each in told.items()} != self._checksums:",
        "if False:",
        (f"{_T_WORKER}/snapshots/test_snapshot_file.py",),
    ),
    _router(
        "the place before an answer that was taken back is not written",
        "snapshots/snapshotting",
        "or newest_length < record.operation_start == record.journal_length",
        "or False",
        "sessions/test_rewinds.py",
    ),
    _shim(
        "thoughts in a content make another conversation",
        "conversations/fingerprints",
        "return text[thought.end() :] if thought else text",
        "return text",
        "conversations/test_fingerprints.py",
    ),
    _matcher(
        "messages of two roles are the same",
        "fingerprints",
        'f"{role}\\0{text}".encode("utf-8", "surrogatepass")',
        'text.encode("utf-8", "surrogatepass")',
    ),
    _matcher(
        "what a user says is trimmed before it is compared",
        "fingerprints",
        "isinstance(message, AssistantMessage) else message.content\n",
        "isinstance(message, AssistantMessage) else message.content.strip()\n",
    ),
    _matcher(
        "answers are the same whatever they say",
        "fingerprints",
        "return text[thought.end() :] if thought else text",
        'return ""',
    ),
    _matcher(
        "calls are the same whatever their arguments",
        "fingerprints",
        'return {"value": value}',
        'return {"value": None}',
    ),
    _matcher(
        "the order of messages does not count",
        "tags",
        "return _hash(_LINK, before + fingerprint(message))",
        "return bytes(one ^ other for one, other in zip(before, fingerprint(message), strict=True))",
    ),
    _matcher(
        "a session that forgets is as good as one that refuses",
        "tags",
        "tokenizer, model, dict(options)]",
        "tokenizer, model, {}]",
    ),
    _matcher(
        "an answer without its last token is as good as one with it",
        "tags",
        "return _hash(_END, behind + bytes([closed]))",
        "return _hash(_END, behind)",
    ),
    _router(
        "a Turn that searches goes on behind an answer that was cut",
        "contract/turns",
        "if found.tag_index not in self.expected or takes_back:",
        "if found.tag_index not in self.expected:",
        "sessions/test_searches.py",
    ),
    _router(
        "a Turn that searches appends what is there already",
        "contract/turns",
        "token_ids = self.token_ids[self.search.expected[found.tag_index] :]",
        "token_ids = self.token_ids",
        "sessions/test_searches.py",
    ),
    _router(
        "a Turn that comes again is not known for its own",
        "contract/turns",
        "takes_back = takes_back and not (op_id and found.record.operation_id == op_id)",
        "takes_back = bool(takes_back)",
        "sessions/test_searches.py",
    ),
    _lua(
        "an answer's beginning is tagged where it does not begin",
        "operations/extend_journal",
        "and tonumber(redis.call('HGET', key.session, 'operation_start')) == length then",
        "then",
        "sessions/test_searches.py",
    ),
    _shim(
        "a turn that searched counts a token that was there",
        "conversations/finding",
        "prompt = way.prompt.after(search.expected[found.tag_index])",
        "prompt = way.prompt",
        "conversations/test_live_chats.py",
    ),
    Fault(
        "a client is led to the session of another tenant",
        f"{_ROUTER}/store/keys.py",
        'tagged:{tenant}:{model}"',
        'tagged:{model}"',
        (HISTORIES,),
    ),
    Fault(
        "an answer that was cut is tagged as if it were whole",
        f"{_SHIM}/choices/choice.py",
        "            if not telling.is_stopped:\n",
        """            if telling.is_stopped:
                await __import__("asyncio").sleep(0.5)
                length = (await turn.session.info()).history_length
                tag = live.chat.conversation.end_tag(telling.told, closed=False)
                turn._is_at_end = await turn._tag(__import__("kakeya").PlaceKind.ANSWER_END, length, tag)
            else:
""",
        (HISTORIES,),
    ),
    _gguf(
        "a GGUF file's lists of numbers may end behind its end",
        "header",
        "end = self.position + num * numbers.itemsize\n        if end > len",
        "end = self.position + num * numbers.itemsize\n        if end < 0 > len",
        "test_header.py",
    ),
    _gguf(
        "a GGUF file's tensors may end behind its end",
        "header",
        "if data + offset + num_bytes > len(self._content):",
        "if data + offset > len(self._content):",
        "test_header.py",
    ),
    _gguf(
        "lists of texts are not bounded", "header", "if self._num_texts > MAX_TEXTS:", "if num < 0:", "test_header.py"
    ),
    _gguf(
        "files of a split model are not held together",
        "gguf_file",
        "or own != number:",
        "and own != number:",
        "test_gguf_file.py",
    ),
    _gguf(
        "a name of Ollama's may lead out of its store",
        "ollama_store",
        'all(_PART.fullmatch(part.replace(":", "_")) for part in parts)',
        "all(parts)",
        "test_ollama_store.py",
    ),
    _gguf(
        "an unknown pre-tokenizer is taken for GPT-2's",
        "tokenizer/pre_tokenizers",
        "return _NAMED[name]",
        'return _NAMED["smollm"]',
        "tokenizer",
    ),
    _gguf(
        "SentencePiece's best pieces are merged last",
        "tokenizer/tokenizer_json",
        "key=lambda scored: -scored[0]",
        "key=lambda scored: scored[0]",
        "tokenizer/test_ids.py",
    ),
    _gguf(
        "a token begins each text unasked",
        "tokenizer/tokenizer_json",
        "said.flag(_ADD_BOS, default=adds_bos)",
        "said.flag(_ADD_BOS, default=True)",
        "tokenizer",
    ),
    _gguf(
        "only one token ends an answer",
        "tokenizer/vocabulary",
        "list(dict.fromkeys([*by_name, *by_text]))",
        "list(dict.fromkeys([*by_name, *by_text]))[:1]",
        "tokenizer/test_directory.py",
    ),
    _gguf_model(
        "Qwen's rows of queries and keys are put in another order",
        "gguf_config",
        'Architecture("qwen3", permutes=False)',
        'Architecture("qwen3", permutes=True)',
        "test_gguf_door.py",
    ),
    _gguf_model(
        "Llama's rows of queries and keys stay in pairs",
        "gguf_config",
        'Architecture("llama", permutes=True)',
        'Architecture("llama", permutes=False)',
        "test_gguf_door.py",
    ),
    _gguf_model(
        "Llama 3's factors are left out",
        "gguf_config",
        "if tensor_names.ROPE_FACTORS in self._file.tensors:",
        "if not self._file.tensors:",
        "test_gguf_door.py",
    ),
    _gguf_model(
        "every head is taken for a table of its own",
        "gguf_config",
        "tensor_names.HEAD not in self._file.tensors",
        "False",
        "test_gguf_door.py",
    ),
    _gguf_model(
        "the fifth bits of Q5_K are lost",
        "block_integers",
        "(0, 4), 15) | high << _FOUR)",
        "(0, 4), 15))",
        "test_dequantization.py",
    ),
    _gguf_model(
        "Q4_K's minima are added",
        "dequantization",
        "numbers = numbers - (offsets",
        "numbers = numbers + (offsets",
        "test_dequantization.py",
    ),
    _gguf_model(
        "tensors that no model has are left out in silence",
        "tensor_names",
        "    if unknown:\n",
        "    if not stored:\n",
        "test_gguf_door.py",
    ),
    _exact(
        "groups are added in another order",
        "linear",
        "zip(of_activations, self._groups, self._scales, strict=True)",
        "reversed(list(zip(of_activations, self._groups, self._scales, strict=True)))",
        "test_quantization.py",
    ),
    _exact(
        "a group's scale is rounded to the nearest, so that weights exceed their limit",
        "quantization",
        "(x.view(torch.int32) + 0xFFFF)",
        "(x.view(torch.int32) + 0x7FFF)",
        "test_quantization.py",
    ),
    _exact(
        "scales of a block's runs are left out",
        "gguf_blocks/linear",
        "whole if scales is None else whole * scales[run]",
        "whole",
        "gguf_blocks/test_gguf_blocks.py",
    ),
    _exact(
        "minima of a block's runs are added",
        "gguf_blocks/linear",
        "y = y + offsets if self._minima is None else y - offsets",
        "y = y + offsets",
        "gguf_blocks/test_gguf_blocks.py",
    ),
    _gguf_model(
        "blocks of queries and keys stay in the file's order",
        "gguf_tensors",
        "integers(kind, self._as_the_hub_has(stored, rows)",
        "integers(kind, rows",
        "test_gguf_door.py",
    ),
    _exact(
        "columns of a table are scaled as those of a layer",
        "quantization",
        "return _quantize([table], torch.zeros(table.shape[1], dtype=torch.int32))",
        "return quantize_matrix([table])",
        "test_quantization.py",
    ),
)
