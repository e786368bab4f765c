-- Takes the session for good, also from a running operation. Should this router vanish before delete_session,
-- the reaper closes the session again once the lease has lapsed.
-- KEYS    session, operation, worker, sessions, expiry, request
-- ARGV    session_id, op_id, router, lease_ms,
--         cause: 'request' (a client's CloseSession), 'expiry' (the reaper), 'abandon' (the CreateSession that
--         made it cannot answer any more)
-- returns {'claimed', record} the record as it was before
--         {'missing'}
--         {'kept'}            not expired, or busy; or wanted by another CreateSession
local session_id, op_id, router, lease_ms, cause = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record = redis.call('HGETALL', KEYS[1])
if #record == 0 then
  redis.call('ZREM', KEYS[5], session_id)
  return {'missing'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = redis.call('HGET', KEYS[1], 'state')
if cause == 'expiry' then
  local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
  local expires_at = redis.call('ZSCORE', KEYS[5], session_id)
  if not expires_at or tonumber(expires_at) > now or (lease_until and tonumber(lease_until) > now) then
    return {'kept'}
  end
elseif state == 'closing' or (state == 'opening' and cause == 'request') then
  return {'missing'}
elseif cause == 'abandon' and state == 'open' and redis.call('HGET', KEYS[1], 'shared') == '1' then
  return {'kept'}
end
redis.call('HSET', KEYS[1], 'state', 'closing')
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'op_id', op_id, 'kind', 'close', 'router', router, 'lease_until_ms', now + lease_ms)
redis.call('ZADD', KEYS[5], now + lease_ms, session_id)
if redis.call('GET', KEYS[6]) == session_id then
  redis.call('DEL', KEYS[6])
end
return {'claimed', record}
