-- Takes the session for an operation: the operation record is the busy flag.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens
-- ARGV    session_id, op_id, kind, router, lease_ms, may_take_over (0: a lapsed lease still counts),
--         parameters, num_tokens and digest of an append (0 and '' otherwise),
--         tokens_per_minute (0: no limit): what the tenant may use, charged when the operation ends
-- returns {'begun', record}
--         {'recover', record} an operation was left behind by its router: taken over under this op_id, to be ended
--                             with what the worker has committed
--         {'failed', record}
--         {'missing'} | {'lost'} | {'busy'}
--         {'quota', 'tokens_per_minute', limit, retry_ms} the tenant has used up its tokens for so long
local session_id, op_id, kind, router, lease_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'history_length', 'ttl_ms')
local state, start_length = record[1], record[3]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
if state == 'failed' then
  return {'failed', redis.call('HGETALL', KEYS[1])}
end
if state == 'lost' or redis.call('HGET', KEYS[3], 'incarnation') ~= record[2] then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
if lease_until and (ARGV[6] == '0' or tonumber(lease_until) > now) then
  return {'busy'}
end
local rate = tonumber(ARGV[10])
if rate > 0 and not lease_until then
  local debt = spent_tokens(KEYS[11], rate, now) - rate
  if debt >= 0 then
    return {'quota', 'tokens_per_minute', ARGV[10], math.floor(debt * 60000 / rate) + 1}
  end
end
redis.call('HSET', KEYS[2], 'op_id', op_id, 'router', router, 'lease_until_ms', now + lease_ms)
redis.call('ZADD', KEYS[5], now + record[4], session_id)
redis.call('ZREM', KEYS[10], session_id)
if lease_until then
  return {'recover', redis.call('HGETALL', KEYS[1])}
end
redis.call('HSET', KEYS[2],
  'kind', kind, 'parameters', ARGV[7], 'start_length', start_length, 'tokens_per_minute', ARGV[10])
if ARGV[8] ~= '0' then
  redis.call('HSET', KEYS[2], 'append_end', start_length + ARGV[8], 'append_digest', ARGV[9])
end
return {'begun', redis.call('HGETALL', KEYS[1])}
