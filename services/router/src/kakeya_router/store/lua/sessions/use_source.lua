-- Looks at a session that another is to branch off from, which counts as use of it where it can: its idle time
-- begins anew.
-- of a session
-- arg may_take_over: 0: a lapsed lease still counts
-- arg boundary: '': wherever it ends
-- arg of_history: 1: it is wanted at that boundary and is reachable there without its lane, which may be busy or gone;
--     0: it is wanted like that and is not reachable; '': with its lane
-- arg incarnation: as the caller knows it, whose worker is in the keys
-- out present {record}
-- out left: an operation was left behind by its router, or did not come to its end, or its lane is gone: what its
--     worker has committed is not known yet, or not all of its history
-- out moved {record}: it is on another worker than the keys say
-- out elsewhere {record}: it ends at another length than the boundary, or is not reachable there
-- out empty: it has no history
-- out failed {record}
-- out missing, lost, busy
local record = redis.call('HMGET', key.session, 'state', 'incarnation', 'ttl_ms', 'history_length', 'journal_length')
local state = record[1]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
if state == 'failed' then
  return {'failed', redis.call('HGETALL', key.session)}
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
if arg.of_history == '0' then
  return {'elsewhere', redis.call('HGETALL', key.session)}
elseif arg.of_history == '1' then
  if not lease_until then  -- else it is in use in any case
    redis.call('HSET', key.session, 'idle_since_ms', now)
    -- A parked one may be kept for longer than its own time.
    local expires_at = tonumber(redis.call('ZSCORE', key.expiry, arg.session_id) or 0)
    redis.call('ZADD', key.expiry, math.max(expires_at, now + record[3]), arg.session_id)
    redis.call('ZADD', key.parked, 'XX', now, arg.session_id)
    if redis.call('ZSCORE', key.idle, arg.session_id) then
      be_idle(now)
    end
  end
  return {'present', redis.call('HGETALL', key.session)}
end
if lease_until then
  return {(arg.may_take_over == '0' or tonumber(lease_until) > now) and 'busy' or 'left'}
end
local history_length = record[4]
if is_gone or history_length ~= record[5] then
  return {'left'}
end
if arg.boundary ~= '' and arg.boundary ~= history_length then
  return {'elsewhere', redis.call('HGETALL', key.session)}
end
if history_length == '0' then
  return {'empty'}
end
redis.call('HSET', key.session, 'idle_since_ms', now)
redis.call('ZADD', key.expiry, now + record[3], arg.session_id)
be_idle(now)
return {'present', redis.call('HGETALL', key.session)}
