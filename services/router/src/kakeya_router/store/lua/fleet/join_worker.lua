-- Registers an incarnation with an empty ledger. An older incarnation of the same worker is lost at once: its
-- bytes go with its record, its sessions are left to the sweep.
-- key worker, workers, lost, queue
-- arg worker_id, incarnation, lease_ms
-- arg again: 1: its process has joined before, and takes its id back from nobody
-- arg features, token_id: of the record
-- arg record...: field, value, ... of the worker record
-- out joined: registered
-- out replaced: registered, and an older incarnation was lost
-- out renewed: this incarnation was registered already; its ledger stands. An older router may have registered it, which
--     keeps neither features nor tokens
-- out taken: another incarnation has joined under the id since; nothing is changed
-- out sweeping: this incarnation was lost and its sessions are not all swept yet; nothing is changed
if redis.call('SISMEMBER', key.lost, arg.incarnation) == 1 then
  return 'sweeping'
end
local now = now_ms()
local registered = redis.call('HGET', key.worker, 'incarnation')
if registered and registered ~= arg.incarnation and arg.again == '1' then
  return 'taken'
end
redis.call('ZADD', key.workers, now + arg.lease_ms, arg.worker_id)
if registered == arg.incarnation then
  redis.call('HSET', key.worker, 'heartbeat_ms', now, 'features', arg.features,
    'token_id', arg.token_id)
  return 'renewed'
end
if registered then
  redis.call('SADD', key.lost, registered)
  redis.call('DEL', key.worker)
end
redis.call('HSET', key.worker, unpack(arg.record))
redis.call('HSET', key.worker, 'heartbeat_ms', now)
announce_room()
return registered and 'replaced' or 'joined'
