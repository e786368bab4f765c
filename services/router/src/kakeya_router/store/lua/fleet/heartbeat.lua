-- Renews an incarnation's lease.
-- KEYS    worker, workers
-- ARGV    worker_id, incarnation, lease_ms, kv_live_bytes (the worker's own sum), rss_bytes (0: not known),
--         leaving (1: it shuts down)
-- returns 'renewed' | 'unknown' (not registered, or not any more)
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then
  return 'unknown'
end
local now = now_ms()
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[1], 'heartbeat_ms', now, 'reported_kv_live_bytes', ARGV[4], 'rss_bytes', ARGV[5],
  'leaving', ARGV[6])
return 'renewed'
