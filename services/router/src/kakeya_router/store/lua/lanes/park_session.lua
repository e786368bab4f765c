-- Takes a session off its lane although that is there: it is PARKED until its next call, and others can have the lane.
-- What it has of snapshots was written before. It stays as idle as it was.
-- of a session
-- arg epoch: of its lease
-- arg parked_ms: how long it is kept then at least, unless it is disposable
-- arg may_take_over: 0: a lapsed lease still counts
-- arg by_journal: 1: only if its journal has all of its history, since no snapshot could be written
-- arg idle_ms, wanted_by: only if it has been idle for so long, and gives way to this tenant (see may_give_way); '':
--     however short
-- out parked {record}: as it was before
-- out no_lane {record}: likewise; it had none any more
-- out left: an operation was left behind by its router: what its worker has committed is not known yet
-- out unrecoverable: what its journal lacks is in no snapshot
-- out kept: it does not give way
-- out changed: it is under another lease
-- out failed {record}
-- out missing, lost, busy
local record = redis.call('HMGET', key.session,
  'state', 'epoch', 'incarnation', 'idle_since_ms', 'journal_length', 'journal_start')
local state = record[1]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
local before = redis.call('HGETALL', key.session)
if state == 'failed' then
  return {'failed', before}
end
if record[2] ~= arg.epoch then
  return {'changed'}
end
local is_gone = redis.call('HGET', key.worker, 'incarnation') ~= record[3]
if state == 'lost' or (is_gone and not is_recoverable()) then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', key.operation, 'lease_until_ms')
if lease_until and (arg.may_take_over == '0' or tonumber(lease_until) > now) then
  return {'busy'}
end
if state == 'parked' then
  return {'no_lane', before}
end
if lease_until and not is_gone then
  return {'left'}
end
if not record[5] or not is_recoverable()
  or (not is_gone and arg.by_journal == '1' and tonumber(record[6] or 0) > 0) then
  return {'unrecoverable'}
end
if arg.idle_ms ~= '' and not may_give_way(now) then
  return {'kept'}
end
charge(record[5], now)
redis.call('DEL', key.operation)
park()
redis.call('ZADD', key.expiry, parked_until(now, record[4]), arg.session_id)
return {is_gone and 'no_lane' or 'parked', before}
