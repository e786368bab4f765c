-- Reserves a lane for a parked session in the middle of an operation on it, if the worker is alive, has the bytes, and
-- nobody in the line comes first. A waiter leaves the line with it.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         of the worker that is to have it
-- ARGV    session_id, claim, worker_id, incarnation, address, lane_bytes,
--         waiter_id ('': not in the line, '*': it does not have to be),
--         may_clear (0: a waiter whose lease has lapsed still counts),
--         fingerprint of the worker, and whether the session is exact there (1 or 0)
-- returns {'seated', record} under a new epoch
--         {'full'} the worker has not the bytes
--         {'away'} the incarnation is not alive, or is being emptied
--         {'wait'} somebody else has the turn at this worker
--         {'gone'} closed, lost or taken over
if not holds(ARGV[2]) or redis.call('HGET', KEYS[1], 'state') ~= 'parked' then
  return {'gone'}
end
local refusal = refuses_lane(KEYS[3], ARGV[4], ARGV[6])
if refusal then
  return {refusal}
end
if ARGV[7] ~= '*' then
  local tenant = redis.call('HGET', KEYS[1], 'tenant') or ''
  local worker = redis.call('HMGET', KEYS[3], 'model', 'snapshot_store', 'model_digest')
  local at = {ARGV[4], ARGV[9], worker[1], worker[2], worker[3]}
  if not has_turn(KEYS[8], KEYS[9], KEYS[7], at, tenant, ARGV[7], now_ms(), ARGV[8] == '1') then
    return {'wait'}
  end
end
redis.call('HSET', KEYS[1], 'epoch', next_epoch(), 'state', 'open', 'worker_id', ARGV[3], 'incarnation', ARGV[4],
  'address', ARGV[5], 'reserved_bytes', ARGV[6], 'history_length', 0, 'lane_rewinds', 0,
  'fingerprint', ARGV[9], 'exact', ARGV[10])
take_lane(KEYS[3], KEYS[4], ARGV[6])
redis.call('ZADD', KEYS[5], now_ms() + redis.call('HGET', KEYS[1], 'ttl_ms'), ARGV[1])
if leave_line(KEYS[8], KEYS[9], ARGV[7]) then
  announce_room(KEYS[8])
end
return {'seated', redis.call('HGETALL', KEYS[1])}
