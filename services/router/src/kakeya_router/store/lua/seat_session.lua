-- Reserves a lane for a parked session in the middle of an operation on it, if the worker is alive and has the bytes.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         of the worker that is to have it
-- ARGV    session_id, claim, worker_id, incarnation, address, lane_bytes
-- returns {'seated', record} under a new epoch
--         {'full'} the worker has not the bytes
--         {'away'} the incarnation is not alive, or is being emptied
--         {'gone'} closed, lost or taken over
if redis.call('HGET', KEYS[2], 'claim') ~= ARGV[2] or redis.call('HGET', KEYS[1], 'state') ~= 'parked' then
  return {'gone'}
end
local worker = redis.call('HMGET', KEYS[3], 'incarnation', 'slab_bytes', 'reserved_bytes')
if worker[1] ~= ARGV[4] or is_draining(KEYS[3]) then
  return {'away'}
end
if worker[2] - worker[3] < tonumber(ARGV[6]) then
  return {'full'}
end
local record = redis.call('HMGET', KEYS[1], 'tenant', 'key_id', 'ttl_ms')
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'state', 'open', 'worker_id', ARGV[3], 'incarnation', ARGV[4], 'address', ARGV[5],
  'reserved_bytes', ARGV[6], 'history_length', 0, 'lane_rewinds', 0)
redis.call('HINCRBY', KEYS[3], 'reserved_bytes', ARGV[6])
redis.call('HINCRBY', KEYS[3], 'num_sessions', 1)
count_lane(KEYS[7], record[1] or '', record[2] or '', ARGV[6], 1)
redis.call('SADD', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], now_ms() + record[3], ARGV[1])
return {'seated', redis.call('HGETALL', KEYS[1])}
