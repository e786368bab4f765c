-- Registers an incarnation with an empty ledger. An older incarnation of the same worker is lost at once: its
-- bytes go with its record, its sessions are left to the sweep.
-- KEYS    worker, workers, lost, queue
-- ARGV    worker_id, incarnation, lease_ms, then field, value, ... of the worker record
-- returns 'joined'   registered
--         'replaced' registered, and an older incarnation was lost
--         'renewed'  this incarnation was registered already; its ledger stands
--         'sweeping' this incarnation was lost and its sessions are not all swept yet; nothing is changed
local worker_id, incarnation, lease_ms = ARGV[1], ARGV[2], ARGV[3]
if redis.call('SISMEMBER', KEYS[3], incarnation) == 1 then
  return 'sweeping'
end
local now = now_ms()
redis.call('ZADD', KEYS[2], now + lease_ms, worker_id)
local registered = redis.call('HGET', KEYS[1], 'incarnation')
if registered == incarnation then
  redis.call('HSET', KEYS[1], 'heartbeat_ms', now)
  return 'renewed'
end
if registered then
  redis.call('SADD', KEYS[3], registered)
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('HSET', KEYS[1], 'heartbeat_ms', now)
announce_room(KEYS[4])
return registered and 'replaced' or 'joined'
