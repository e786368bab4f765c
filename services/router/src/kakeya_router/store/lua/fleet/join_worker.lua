-- Registers an incarnation with an empty ledger. An older incarnation of the same worker is lost at once: its
-- bytes go with its record, its sessions are left to the sweep.
-- key worker, workers, lost, queue
-- arg worker_id, incarnation, lease_ms
-- arg again: 1: its process has joined before, and takes its id back from nobody
-- arg features, token_id, model: of the record
-- arg of_worker: what the key of a worker begins with; its id follows
-- arg record...: field, value, ... of the worker record
-- out joined: registered
-- out replaced: registered, and an older incarnation was lost
-- out renewed: this incarnation was registered already; its ledger stands. An older router may have registered it, which
--     keeps neither features nor tokens
-- out taken: another incarnation has joined under the id since; nothing is changed
-- out other_model {model}: the pool serves another one; nothing is changed. All its workers serve the same, so that some of
--     them say it
-- out sweeping: this incarnation was lost and its sessions are not all swept yet; nothing is changed
if redis.call('SISMEMBER', key.lost, arg.incarnation) == 1 then
  return 'sweeping'
end
for _, worker_id in ipairs(redis.call('ZRANGE', key.workers, 0, 3)) do
  local model = redis.call('HGET', arg.of_worker .. worker_id, 'model')
  if model and model ~= arg.model then
    return {'other_model', model}
  end
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
