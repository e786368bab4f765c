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
local refusal = refuses_lane(KEYS[3], ARGV[4], ARGV[6])
if refusal then
  return {refusal}
end
redis.call('HSET', KEYS[1], 'epoch', next_epoch(), 'state', 'open', 'worker_id', ARGV[3], 'incarnation', ARGV[4],
  'address', ARGV[5], 'reserved_bytes', ARGV[6], 'history_length', 0, 'lane_rewinds', 0)
take_lane(KEYS[3], KEYS[4], ARGV[6])
redis.call('ZADD', KEYS[5], now_ms() + redis.call('HGET', KEYS[1], 'ttl_ms'), ARGV[1])
return {'seated', redis.call('HGETALL', KEYS[1])}
