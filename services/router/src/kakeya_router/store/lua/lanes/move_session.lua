-- Gives a session that is idle, or that the operation which runs on it moves, the lane on another worker that was
-- opened under the epoch that offer_lane.lua has named. That lane holds what its own held when it was copied.
-- of a session
-- key new_worker, new_sessions: of the worker that it goes to
-- key heirs, snapshot_bytes
-- arg epoch, offered_epoch
-- arg operation_number: of the session before the lane was copied
-- arg worker_id, incarnation, address, lane_bytes: of the worker that it goes to
-- arg history_length, kv_live_bytes, retained: of its lane there
-- arg fingerprint, exact: of that worker, and whether the session is exact there (1 or 0)
-- arg claim: of the operation; '': none
-- arg snapshots, snapshot_store: the list of its snapshots there (see stored_snapshots.py), and the store that they are
--     in; '': it keeps those that it has
-- out moved {record}
-- out full, away: as in resume_session.lua
-- out changed: it was used, moved or closed since, or the offer has lapsed, or the copy is of another length
local record = redis.call('HMGET', key.session,
  'state', 'epoch', 'offered_epoch', 'offered_until_ms', 'operation_number', 'history_length', 'journal_length')
local length = tonumber(arg.history_length)
if record[1] ~= 'open' or record[2] ~= arg.epoch or record[3] ~= arg.offered_epoch
  or tonumber(record[4] or 0) <= now_ms() or (record[5] or '0') ~= arg.operation_number
  or (redis.call('HGET', key.operation, 'claim') or '') ~= arg.claim
  or length < tonumber(record[6]) or length > tonumber(record[7] or 0) then
  return {'changed'}
end
local refusal = refuses_lane(key.new_worker)
if refusal then
  return {refusal}
end
give_back()
redis.call('HSET', key.session, 'epoch', arg.offered_epoch, 'worker_id', arg.worker_id,
  'incarnation', arg.incarnation, 'address', arg.address, 'reserved_bytes', arg.lane_bytes,
  'history_length', arg.history_length, 'kv_live_bytes', arg.kv_live_bytes, 'retained', arg.retained,
  'lane_rewinds', 0, 'fingerprint', arg.fingerprint, 'exact', arg.exact)
redis.call('HDEL', key.session, 'offered_until_ms')
if arg.snapshots ~= '' then
  count_snapshots(redis.call('HGET', key.session, 'snapshots'), arg.snapshots)
  redis.call('HSET', key.session, 'snapshots', arg.snapshots, 'snapshot_store', arg.snapshot_store)
end
take_lane(key.new_worker, key.new_sessions, arg.lane_bytes)
announce_change(arg.session_id)
redis.call('HINCRBY', key.new_worker, 'kv_live_bytes', arg.kv_live_bytes)
return {'moved', redis.call('HGETALL', key.session)}
