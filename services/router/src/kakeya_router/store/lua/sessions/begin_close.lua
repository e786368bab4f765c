-- Takes the session for good, also from a running operation.
-- of a session
-- arg claim, router, lease_ms
-- arg cause: 'request' (a client's CloseSession), 'expiry' (the reaper), 'abandon' (the CreateSession that made it
--     cannot answer any more), 'idle' (its lane is wanted)
-- arg idle_ms, wanted_by: of 'idle': how long it must have been idle, and the tenant that wants the lane
-- out claimed {record}: as it was before
-- out missing
-- out kept: not expired, or busy; or wanted by another CreateSession; or not to give way, see may_give_way
local record = redis.call('HGETALL', key.session)
if #record == 0 then
  redis.call('ZREM', key.expiry, arg.session_id)
  return {'missing'}
end
local now = now_ms()
local state = redis.call('HGET', key.session, 'state')
local lease_until = redis.call('HGET', key.operation, 'lease_until_ms')
local busy = lease_until and tonumber(lease_until) > now
if arg.cause == 'expiry' then
  local expires_at = redis.call('ZSCORE', key.expiry, arg.session_id)
  if not expires_at or tonumber(expires_at) > now or busy then
    return {'kept'}
  end
elseif arg.cause == 'idle' then
  if busy or not may_give_way(now) then
    return {'kept'}
  end
elseif state == 'closing' or (state == 'opening' and arg.cause == 'request') then
  return {'missing'}
elseif arg.cause == 'abandon' and (state == 'open' or state == 'parked')
  and redis.call('HGET', key.session, 'shared') == '1' then
  return {'kept'}
end
-- What the operation that is closed with it has used is charged when the final length is known.
local running = redis.call('HMGET', key.operation, 'start_length', 'tokens_per_minute')
claim_for_good(now)
if running[1] then
  redis.call('HSET', key.operation, 'start_length', running[1], 'tokens_per_minute', running[2] or 0)
end
return {'claimed', record}
