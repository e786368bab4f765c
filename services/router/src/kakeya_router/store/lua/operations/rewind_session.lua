-- Takes the history back to a length, in the middle of an operation; the session's snapshots beyond it are forgotten.
-- of a session
-- key heirs, snapshot_bytes
-- arg claim, epoch, length
-- arg known, snapshots: the list of snapshots as the caller knows it, and the new one (see stored_snapshots.py)
-- arg snapshot_store: that they are in
-- arg lane_rewinds: '': the lane does not go back with the history, and is given up
-- arg known_inherited, inherited: the list of those inherited as the caller knows it, and the part of it that it keeps
-- arg digest: of the history in the lane then; '': not known
-- out rewound {record}: PARKED if the lane is given up
-- out changed {record}: a list is another one; nothing is changed
-- out gone: closed, lost, taken over or under another lease; nothing is changed
local record = redis.call('HMGET', key.session, 'epoch', 'snapshots', 'boundaries', 'inherited')
if not holds() or record[1] ~= arg.epoch then
  return {'gone'}
end
if (record[2] or '') ~= arg.known or (record[4] or '') ~= arg.known_inherited then
  return {'changed', redis.call('HGETALL', key.session)}
end
local length = tonumber(arg.length)
cut_journal(length, arg.digest ~= '' and arg.digest or nil)
local boundaries = {}
for boundary in string.gmatch(record[3] or '', '%d+') do
  if tonumber(boundary) <= length then
    boundaries[#boundaries + 1] = boundary
  end
end
count_snapshots(record[2], arg.snapshots)
redis.call('HSET', key.session, 'boundaries', table.concat(boundaries, ','), 'snapshots', arg.snapshots,
  'snapshot_store', arg.snapshot_store, 'operation_id', arg.claim, 'operation_start', arg.length, 'operation_seed', 0,
  'operation_features', '')
disinherit(arg.inherited)
redis.call('HSET', key.operation, 'start_length', arg.length)
if arg.lane_rewinds == '' then
  park()
else
  redis.call('HSET', key.session, 'history_length', arg.length, 'lane_rewinds', arg.lane_rewinds)
end
return {'rewound', redis.call('HGETALL', key.session)}
