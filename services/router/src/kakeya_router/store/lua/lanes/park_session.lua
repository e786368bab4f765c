-- Takes a session off its lane although that is there: it is PARKED until its next call, and others can have the lane.
-- What it has of snapshots was written before. It stays as idle as it was.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, epoch of its lease, parked_ms (how long it is kept then),
--         may_take_over (0: a lapsed lease still counts),
--         by_journal (1: only if its journal has all of its history, since no snapshot could be written),
--         idle_ms ('': however short), then the tenant that wants the lane; see may_give_way
-- returns {'parked', record}   the record as it was before
--         {'homeless', record} likewise; it had no lane any more
--         {'left'} an operation was left behind by its router: what its worker has committed is not known yet
--         {'unrecoverable'} what its journal lacks is in no snapshot
--         {'kept'} it does not give way
--         {'changed'} it is under another lease
--         {'failed', record}
--         {'missing'} | {'lost'} | {'busy'}
local record = redis.call('HMGET', KEYS[1],
  'state', 'epoch', 'incarnation', 'ttl_ms', 'idle_since_ms', 'journal_length', 'journal_start')
local state = record[1]
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
end
local before = redis.call('HGETALL', KEYS[1])
if state == 'failed' then
  return {'failed', before}
end
if record[2] ~= ARGV[2] then
  return {'changed'}
end
local homeless = redis.call('HGET', KEYS[3], 'incarnation') ~= record[3]
if state == 'lost' or (homeless and not is_recoverable()) then
  return {'lost'}
end
local now = now_ms()
local lease_until = redis.call('HGET', KEYS[2], 'lease_until_ms')
if lease_until and (ARGV[4] == '0' or tonumber(lease_until) > now) then
  return {'busy'}
end
if state == 'parked' then
  return {'homeless', before}
end
if lease_until and not homeless then
  return {'left'}
end
if not record[6] or not is_recoverable() or (not homeless and ARGV[5] == '1' and tonumber(record[7] or 0) > 0) then
  return {'unrecoverable'}
end
if ARGV[6] ~= '' and not may_give_way(ARGV[6], ARGV[7], now) then
  return {'kept'}
end
charge_operation(record[6], now)
redis.call('DEL', KEYS[2])
park()
redis.call('ZADD', KEYS[5], math.max(now + ARGV[3], record[5] + record[4]), ARGV[1])
return {homeless and 'homeless' or 'parked', before}
