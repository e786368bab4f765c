-- Gives a session that is idle, or that the operation which runs on it moves, the lane on another worker that was opened under the epoch that offer_lane.lua has named, and
-- that holds what the lane held which it has, in the place of that one.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then worker and sessions of the one that it goes to
-- ARGV    session_id, epoch, offered epoch, operation_number of the session before the lane was copied,
--         worker_id, incarnation, address, lane_bytes of the one that it goes to,
--         history_length, kv_live_bytes and retained of its lane there,
--         fingerprint of that worker, and whether the session is exact there (1 or 0), claim of the operation ('': none),
--         the list of its snapshots there (see stored_snapshots.py) and the store that they are in ('': it keeps those that it has)
-- returns {'moved', record}
--         {'full'} | {'away'} as in seat_session.lua
--         {'changed'} it was used, moved or closed since, or the offer has lapsed, or the copy is of another length
local record = redis.call('HMGET', KEYS[1],
  'state', 'epoch', 'offered_epoch', 'offered_until_ms', 'operation_number', 'history_length', 'journal_length')
local length = tonumber(ARGV[9])
if record[1] ~= 'open' or record[2] ~= ARGV[2] or record[3] ~= ARGV[3] or tonumber(record[4] or 0) <= now_ms()
  or (redis.call('HGET', KEYS[2], 'claim') or '') ~= ARGV[14] or (record[5] or '0') ~= ARGV[4]
  or length < tonumber(record[6]) or length > tonumber(record[7] or 0) then
  return {'changed'}
end
local refusal = refuses_lane(KEYS[13], ARGV[6], ARGV[8])
if refusal then
  return {refusal}
end
give_back()
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'worker_id', ARGV[5], 'incarnation', ARGV[6], 'address', ARGV[7],
  'reserved_bytes', ARGV[8], 'history_length', ARGV[9], 'kv_live_bytes', ARGV[10], 'retained', ARGV[11],
  'lane_rewinds', 0, 'fingerprint', ARGV[12], 'exact', ARGV[13])
redis.call('HDEL', KEYS[1], 'offered_until_ms')
if ARGV[15] ~= '' then
  redis.call('HSET', KEYS[1], 'snapshots', ARGV[15], 'snapshot_store', ARGV[16])
end
take_lane(KEYS[13], KEYS[14], ARGV[8])
redis.call('HINCRBY', KEYS[13], 'kv_live_bytes', ARGV[10])
return {'moved', redis.call('HGETALL', KEYS[1])}
