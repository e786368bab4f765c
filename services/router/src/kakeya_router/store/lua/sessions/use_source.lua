-- Looks at a session that another is to branch off from, which counts as use of it where it can: its idle time
-- begins anew.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, may_take_over (0: a lapsed lease still counts), boundary ('': wherever it ends),
--         of_history: 1: it is wanted at that boundary and can be had there without its lane, which may be busy or
--         gone; 0: it is wanted like that and cannot be had; '': with its lane,
--         incarnation as the caller knows it, whose worker is in KEYS
-- returns {'present', record}
--         {'left'} an operation was left behind by its router, or did not come to its end, or its lane is gone: what its
--                  worker has committed is not known yet, or not all of its history
--         {'moved', record} it is on another worker than KEYS say
--         {'elsewhere', record} it ends at another length than the boundary, or cannot be had there
--         {'empty'} it has no history
--         {'failed', record}
--         {'missing'} | {'lost'} | {'busy'}
local session_id = ARGV[1]
local record = redis.call('HMGET', KEYS[1], 'state', 'incarnation', 'ttl_ms', 'history_length', 'journal_length')
local state = record[1]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
if state == 'failed' then
  return {'failed', redis.call('HGETALL', KEYS[1])}
end
if record[2] ~= ARGV[5] then
  return {'moved', redis.call('HGETALL', KEYS[1])}
end
local homeless = redis.call('HGET', KEYS[3], 'incarnation') ~= record[2]
if state == 'lost' or (homeless and not is_recoverable()) then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
if ARGV[4] == '0' then
  return {'elsewhere', redis.call('HGETALL', KEYS[1])}
elseif ARGV[4] == '1' then
  if not lease_until then  -- else it is in use in any case
    redis.call('HSET', KEYS[1], 'idle_since_ms', now)
    -- A parked one may be kept for longer than its own time.
    local expires_at = tonumber(redis.call('ZSCORE', KEYS[5], session_id) or 0)
    redis.call('ZADD', KEYS[5], math.max(expires_at, now + record[3]), session_id)
    redis.call('ZADD', KEYS[10], 'XX', now, session_id)
  end
  return {'present', redis.call('HGETALL', KEYS[1])}
end
if lease_until then
  return {(ARGV[2] == '0' or tonumber(lease_until) > now) and 'busy' or 'left'}
end
local history_length = record[4]
if homeless or history_length ~= record[5] then
  return {'left'}
end
if ARGV[3] ~= '' and ARGV[3] ~= history_length then
  return {'elsewhere', redis.call('HGETALL', KEYS[1])}
end
if history_length == '0' then
  return {'empty'}
end
redis.call('HSET', KEYS[1], 'idle_since_ms', now)
redis.call('ZADD', KEYS[5], now + record[3], session_id)
redis.call('ZADD', KEYS[10], now, session_id)
return {'present', redis.call('HGETALL', KEYS[1])}
