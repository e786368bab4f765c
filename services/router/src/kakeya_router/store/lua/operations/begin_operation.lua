-- Takes the session for an operation: the operation record is the busy flag.
-- of a session
-- arg claim, kind, router, lease_ms
-- arg may_take_over: 0: a lapsed lease still counts
-- arg parameters
-- arg num_tokens, digest: of an append, also one that a Generate begins with; 0 and '' otherwise
-- arg tokens_per_minute: what the tenant may use, charged when the operation ends; 0: no limit
-- arg seed
-- arg op_id: that the client has given; '': none
-- arg may_begin: 0: it is of a Generate that has begun
-- arg at_length: of a new operation: the history length at which alone it begins; '': wherever that ends
-- arg behind: of a new operation: op_id of the latest one, behind which alone it begins; '': behind any
-- arg incarnation: as the caller knows it, whose worker is in the keys
-- out begun {record}
-- out parked {record}: begun, too: it has no lane any more, and can be resumed
-- out recover {record}: an operation was left behind by its router: taken over under this claim, to be ended with what
--     the worker has committed
-- out moved {record}: it is on another worker than the keys say, and nothing is changed
-- out apart {record}: the history has another length than it is to begin at, or another latest operation
-- out failed {record}
-- out unknown {record}: the latest operation was another one
-- out missing, lost, busy
-- out quota {name, limit, retry_ms}: the tenant has used up its tokens for so long
local record = redis.call('HMGET', key.session, 'state', 'incarnation', 'journal_length', 'ttl_ms')
local state, start_length = record[1], record[3]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
if state == 'failed' then
  return {'failed', redis.call('HGETALL', key.session)}
end
if not start_length then  -- an older router opened it, and kept no journal
  start_length = redis.call('HGET', key.session, 'history_length')
  redis.call('HSET', key.session, 'journal_length', start_length, 'journal_start', start_length)
end
if record[2] ~= arg.incarnation then
  return {'moved', redis.call('HGETALL', key.session)}
end
local is_gone = redis.call('HGET', key.worker, 'incarnation') ~= record[2]
if state == 'lost' or (is_gone and not is_recoverable()) then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', key.operation, 'lease_until_ms')
local op_id = arg.op_id
-- A client that goes on with an operation knows that its router is gone, or will not hear from it again.
if lease_until and (arg.may_take_over == '0' or tonumber(lease_until) > now)
  and (op_id == '' or redis.call('HGET', key.operation, 'op_id') ~= op_id) then
  return {'busy'}
end
local is_new = op_id == '' or redis.call('HGET', key.session, 'operation_id') ~= op_id
if is_new and arg.may_begin == '0' and not lease_until then
  return {'unknown', redis.call('HGETALL', key.session)}
end
local is_there = arg.at_length == '' or tonumber(arg.at_length) == tonumber(start_length)
local is_next = arg.behind == '' or redis.call('HGET', key.session, 'operation_id') == arg.behind
if is_new and not lease_until and not (is_there and is_next) then
  return {'apart', redis.call('HGETALL', key.session)}
end
local back_ms = not lease_until and is_new and tokens_back_ms(now)
if back_ms then
  return {'quota', 'tokens_per_minute', arg.tokens_per_minute, back_ms}
end
local expires_at = redis.call('ZSCORE', key.expiry, arg.session_id)
redis.call('HSET', key.operation, 'claim', arg.claim, 'router', arg.router, 'lease_until_ms', now + arg.lease_ms)
redis.call('HINCRBY', key.session, 'operation_number', 1)
redis.call('ZADD', key.expiry, 'GT', now + record[4], arg.session_id)  -- a parked one is kept for longer
be_busy()
if lease_until then
  redis.call('HSET', key.operation, 'taken_over', 1)
  return {'recover', redis.call('HGETALL', key.session)}
end
if op_id == '' then
  op_id = arg.claim
end
-- A lane was ahead of a history that Redis does not have any more, as a heartbeat said.
if tonumber(redis.call('HGET', key.session, 'history_length')) > tonumber(start_length) then
  redis.call('HSET', key.session, 'history_length', start_length)
end
-- Where an append ends, or the one that a Generate begins with: there its answer begins.
local append_end = string.format('%.0f', start_length + arg.num_tokens)
-- A rewind may be to where the latest one began, of which nothing is to be forgotten meanwhile: it becomes the latest
-- once it has taken place (rewind_session.lua).
if is_new and arg.kind ~= 'fork' and arg.kind ~= 'park' and arg.kind ~= 'rewind' then
  -- For one that changes nothing after all.
  local latest = redis.call(
    'HMGET', key.session, 'operation_id', 'operation_start', 'operation_seed', 'operation_features')
  redis.call('HSET', key.operation,
    'before', cjson.encode({latest[1] or '', latest[2] or '0', latest[3] or '0', latest[4] or ''}))
  redis.call('HSET', key.session, 'operation_id', op_id, 'operation_seed', arg.seed, 'operation_features', '',
    'operation_start', arg.kind == 'generate' and append_end or start_length)
end
redis.call('HSET', key.operation,
  'op_id', op_id, 'kind', arg.kind, 'parameters', arg.parameters, 'start_length', start_length,
  'tokens_per_minute', arg.tokens_per_minute, 'expires_at', expires_at or '')
local is_appended = arg.kind == 'generate' and redis.call('HGET', key.session, 'operation_start') ~= append_end
if arg.num_tokens ~= '0' and not is_appended then
  redis.call('HSET', key.operation, 'append_end', append_end, 'append_digest', arg.digest)
end
return {is_gone and 'parked' or 'begun', redis.call('HGETALL', key.session)}
