-- Forgets an incarnation. Its bytes return with its record, in one step; its sessions are left to the sweep.
-- key worker, workers, lost
-- arg worker_id, incarnation
-- arg lapsed_only: 1: only when its lease has lapsed
-- out dropped
-- out kept: another incarnation is registered, or none, or the lease still runs
if redis.call('HGET', key.worker, 'incarnation') ~= arg.incarnation then
  return 'kept'
end
local now = now_ms()
if arg.lapsed_only == '1' and tonumber(redis.call('ZSCORE', key.workers, arg.worker_id) or 0) > now then
  return 'kept'
end
redis.call('DEL', key.worker)
redis.call('ZREM', key.workers, arg.worker_id)
redis.call('SADD', key.lost, arg.incarnation)
return 'dropped'
