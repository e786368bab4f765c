-- Renews an incarnation's lease.
-- key worker, workers, queue
-- arg worker_id, incarnation, lease_ms
-- arg kv_live_bytes: the worker's own sum
-- arg rss_bytes: 0: not known
-- arg leaving: 1: it shuts down
-- arg tunnels: routers that its tunnels end at, separated by commas
-- arg number: rises with each; 0: it has none. What one says that comes after a later one is old
-- out renewed
-- out unknown: not registered, or not any more
if redis.call('HGET', key.worker, 'incarnation') ~= arg.incarnation then
  return 'unknown'
end
local now = now_ms()
redis.call('ZADD', key.workers, now + arg.lease_ms, arg.worker_id)
redis.call('HSET', key.worker, 'heartbeat_ms', now)
if arg.number == '0' or tonumber(arg.number) > tonumber(redis.call('HGET', key.worker, 'heartbeat_number') or 0) then
  local took_nobody = takes_nobody(key.worker)
  redis.call('HSET', key.worker, 'heartbeat_number', arg.number, 'reported_kv_live_bytes', arg.kv_live_bytes,
    'rss_bytes', arg.rss_bytes, 'leaving', arg.leaving, 'tunnels', arg.tunnels)
  if took_nobody and not takes_nobody(key.worker) then
    announce_room()
  end
end
return 'renewed'
