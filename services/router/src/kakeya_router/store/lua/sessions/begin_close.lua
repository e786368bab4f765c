-- Takes the session for good, also from a running operation.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, router, lease_ms,
--         cause: 'request' (a client's CloseSession), 'expiry' (the reaper), 'abandon' (the CreateSession that
--         made it cannot answer any more), 'idle' (its lane is wanted),
--         then for 'idle': how long it must have been idle in milliseconds, the tenant that wants the lane
-- returns {'claimed', record} the record as it was before
--         {'missing'}
--         {'kept'}            not expired, or busy; or wanted by another CreateSession; or not to give way, see
--                             may_give_way
local session_id, claim, router, lease_ms, cause = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local record = redis.call('HGETALL', KEYS[1])
if #record == 0 then
  redis.call('ZREM', KEYS[5], session_id)
  return {'missing'}
end
local now = now_ms()
local state = redis.call('HGET', KEYS[1], 'state')
local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
local busy = lease_until and tonumber(lease_until) > now
if cause == 'expiry' then
  local expires_at = redis.call('ZSCORE', KEYS[5], session_id)
  if not expires_at or tonumber(expires_at) > now or busy then
    return {'kept'}
  end
elseif cause == 'idle' then
  if busy or not may_give_way(ARGV[6], ARGV[7], now) then
    return {'kept'}
  end
elseif state == 'closing' or (state == 'opening' and cause == 'request') then
  return {'missing'}
elseif cause == 'abandon' and (state == 'open' or state == 'parked') and redis.call('HGET', KEYS[1], 'shared') == '1' then
  return {'kept'}
end
-- What the operation that is closed with it has used is charged when the final length is known.
local running = redis.call('HMGET', KEYS[2], 'start_length', 'tokens_per_minute')
claim_for_good(claim, router, lease_ms, now)
if running[1] then
  redis.call('HSET', KEYS[2], 'start_length', running[1], 'tokens_per_minute', running[2] or 0)
end
return {'claimed', record}
