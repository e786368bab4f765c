-- Removes every trace of a session that begin_close has claimed, and returns its bytes to the ledger.
-- KEYS    session, operation, worker, sessions, expiry, request
-- ARGV    session_id, op_id
-- returns 'deleted' | 'gone' (another router claimed it after this one's lease had lapsed)
if redis.call('HGET', KEYS[2], 'op_id') ~= ARGV[2] then
  return 'gone'
end
local record = redis.call('HMGET', KEYS[1], 'incarnation', 'reserved_bytes', 'kv_live_bytes')
local holds_lane = tonumber(record[2]) > 0
if holds_lane and redis.call('HGET', KEYS[3], 'incarnation') == record[1] then
  redis.call('HINCRBY', KEYS[3], 'reserved_bytes', 0 - record[2])
  redis.call('HINCRBY', KEYS[3], 'kv_live_bytes', 0 - record[3])
  redis.call('HINCRBY', KEYS[3], 'num_sessions', -1)
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
return 'deleted'
