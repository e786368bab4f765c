-- Takes the session for good, also from a running operation.
-- of a session
-- key snapshot_bytes
-- arg claim, router, lease_ms
-- arg cause: 'request' (a client's CloseSession), 'expiry' (the reaper), 'abandon' (the CreateSession that made it
--     cannot answer any more), 'idle' (its lane is wanted), 'surplus' (its tenant has too many of its group), 'bound'
--     (the pool keeps too much)
-- arg idle_ms, wanted_by: of 'idle': how long it must have been idle, and the tenant that wants the lane
-- arg limit: of 'surplus': how many of its group may stay
-- arg max_parked, max_bytes: of 'bound': how many parked disposable sessions may stay, and how many bytes of snapshots; 0:
--     no limit
-- out claimed {record}: as it was before
-- out missing
-- out kept: not expired, or busy; or wanted by another CreateSession; or not to give way, see may_give_way; or not too many
-- Whether it is one of too many, and one that may go.
local function is_surplus()
  local record = redis.call('HMGET', key.session, 'tenant', 'group')
  local prefix = group_prefix(record[1], record[2] or '')
  return redis.call('ZLEXCOUNT', key.groups, group_range(prefix)) > tonumber(arg.limit)
    and (redis.call('ZSCORE', key.spare, arg.session_id) or redis.call('ZSCORE', key.parked, arg.session_id))
end
-- Whether it is parked, and what the pool keeps is too much.
local function is_beyond()
  local function exceeds(amount, limit)
    return tonumber(limit) > 0 and tonumber(amount or 0) > tonumber(limit)
  end
  return redis.call('ZSCORE', key.parked, arg.session_id)
    and (exceeds(redis.call('ZCARD', key.parked), arg.max_parked)
      or exceeds(redis.call('GET', key.snapshot_bytes) or 0, arg.max_bytes))
end
local record = redis.call('HGETALL', key.session)
if #record == 0 then
  leave_pool(arg.session_id)
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
elseif arg.cause == 'surplus' then
  if busy or not is_surplus() then
    return {'kept'}
  end
elseif arg.cause == 'bound' then
  if busy or not is_beyond() then
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
