-- Renews an incarnation's lease.
-- key worker, workers
-- arg worker_id, incarnation, lease_ms
-- arg kv_live_bytes: the worker's own sum
-- arg rss_bytes: 0: not known
-- arg leaving: 1: it shuts down
-- out renewed
-- out unknown: not registered, or not any more
if redis.call('HGET', key.worker, 'incarnation') ~= arg.incarnation then
  return 'unknown'
end
local now = now_ms()
redis.call('ZADD', key.workers, now + arg.lease_ms, arg.worker_id)
redis.call('HSET', key.worker, 'heartbeat_ms', now, 'reported_kv_live_bytes', arg.kv_live_bytes,
  'rss_bytes', arg.rss_bytes, 'leaving', arg.leaving)
return 'renewed'
