-- Forgets an incarnation. Its bytes return with its record, in one step; its sessions are left to the sweep.
-- KEYS    worker, workers, lost
-- ARGV    worker_id, incarnation, lapsed_only (1: only when its lease has lapsed)
-- returns 'dropped' | 'kept' (another incarnation is registered, or none, or the lease still runs)
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then
  return 'kept'
end
local now = now_ms()
if ARGV[3] == '1' and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0) > now then
  return 'kept'
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[2])
return 'dropped'
