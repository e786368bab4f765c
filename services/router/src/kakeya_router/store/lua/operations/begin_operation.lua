-- Takes the session for an operation: the operation record is the busy flag.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, kind, router, lease_ms, may_take_over (0: a lapsed lease still counts),
--         parameters, num_tokens and digest of an append (0 and '' otherwise),
--         tokens_per_minute (0: no limit): what the tenant may use, charged when the operation ends,
--         seed, op_id that the client has given ('': none), may_begin (0: it is of a Generate that has begun),
--         incarnation as the caller knows it, whose worker is in KEYS
-- returns {'begun', record}
--         {'homeless', record} begun, too: it has no lane any more, but can be had again
--         {'recover', record} an operation was left behind by its router: taken over under this claim, to be ended
--                             with what the worker has committed
--         {'moved', record} it is on another worker than KEYS say, and nothing is changed
--         {'failed', record}
--         {'unknown'} the latest operation was another one
--         {'missing'} | {'lost'} | {'busy'}
--         {'quota', 'tokens_per_minute', limit, retry_ms} the tenant has used up its tokens for so long
local session_id, claim, kind, router, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'journal_length', 'ttl_ms')
local state, start_length = record[1], record[3]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
if state == 'failed' then
  return {'failed', redis.call('HGETALL', KEYS[1])}
end
if not start_length then  -- an older router opened it, and kept no journal
  start_length = redis.call('HGET', KEYS[1], 'history_length')
  redis.call('HSET', KEYS[1], 'journal_length', start_length, 'journal_start', start_length)
end
if record[2] ~= ARGV[14] then
  return {'moved', redis.call('HGETALL', KEYS[1])}
end
local homeless = redis.call('HGET', KEYS[3], 'incarnation') ~= record[2]
if state == 'lost' or (homeless and not is_recoverable()) then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
local seed, op_id = ARGV[11], ARGV[12]
-- Whoever goes on with an operation knows that its router is gone, or will not hear from it again.
if lease_until and (ARGV[6] == '0' or tonumber(lease_until) > now)
  and (op_id == '' or redis.call('HGET', KEYS[2], 'op_id') ~= op_id) then
  return {'busy'}
end
local is_new = op_id == '' or redis.call('HGET', KEYS[1], 'operation_id') ~= op_id
if is_new and ARGV[13] == '0' and not lease_until then
  return {'unknown'}
end
local back_ms = not lease_until and is_new and tokens_back_ms(tonumber(ARGV[10]), now)
if back_ms then
  return {'quota', 'tokens_per_minute', ARGV[10], back_ms}
end
local expires_at = redis.call('ZSCORE', KEYS[5], session_id)
redis.call('HSET', KEYS[2], 'claim', claim, 'router', router, 'lease_until_ms', now + lease_ms)
redis.call('HINCRBY', KEYS[1], 'operation_number', 1)
redis.call('ZADD', KEYS[5], 'GT', now + record[4], session_id)  -- a parked one is kept for longer
redis.call('ZREM', KEYS[10], session_id)
if lease_until then
  redis.call('HSET', KEYS[2], 'taken_over', 1)
  return {'recover', redis.call('HGETALL', KEYS[1])}
end
if op_id == '' then
  op_id = claim
end
-- A lane was ahead of a history that Redis does not have any more, as a heartbeat said.
if tonumber(redis.call('HGET', KEYS[1], 'history_length')) > tonumber(start_length) then
  redis.call('HSET', KEYS[1], 'history_length', start_length)
end
-- A rewind may be to where the latest one began, of which nothing is to be forgotten meanwhile: it becomes the latest
-- once it has taken place (rewind_session.lua).
if is_new and kind ~= 'fork' and kind ~= 'park' and kind ~= 'rewind' then
  -- For one that changes nothing after all.
  local latest = redis.call('HMGET', KEYS[1], 'operation_id', 'operation_start', 'operation_seed')
  redis.call('HSET', KEYS[2], 'before', cjson.encode({latest[1] or '', latest[2] or '0', latest[3] or '0'}))
  redis.call('HSET', KEYS[1], 'operation_id', op_id, 'operation_start', start_length, 'operation_seed', seed)
end
redis.call('HSET', KEYS[2],
  'op_id', op_id, 'kind', kind, 'parameters', ARGV[7], 'start_length', start_length, 'tokens_per_minute', ARGV[10],
  'expires_at', expires_at or '')
if ARGV[8] ~= '0' then
  redis.call('HSET', KEYS[2], 'append_end', start_length + ARGV[8], 'append_digest', ARGV[9])
end
return {homeless and 'homeless' or 'begun', redis.call('HGETALL', KEYS[1])}
