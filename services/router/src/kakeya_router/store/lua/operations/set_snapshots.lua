-- Replaces the list of a session's snapshots, and forgets those that it has inherited and the part of its journal that
-- they make superfluous.
-- of a session
-- key heirs, snapshot_bytes
-- arg epoch
-- arg known, snapshots: the list as the caller knows it, and the new one (see stored_snapshots.py)
-- arg length: the greatest in it
-- arg journal_start: the one to be
-- arg snapshot_store: that they are in
-- arg num_rewinds: when the newest was begun
-- arg operation_number, operation_start: as the caller knows them, who has asked what the operation before needs
-- arg known_inherited, inherited: the list of those inherited as the caller knows it, and the part of it that it keeps
-- arg digest: of the history that the newest holds; '': not known
-- out set
-- out ahead: that length is not journaled yet
-- out unlike: the newest holds another history than the session has, as where Redis was set back
-- out changed: a list is another one, or an operation has begun or changed nothing after all
-- out gone: closed, under another lease, or rewound since
local record = redis.call('HMGET', key.session,
  'state', 'epoch', 'snapshots', 'journal_length', 'operation_start', 'num_rewinds', 'inherited', 'operation_number')
if (record[1] ~= 'open' and record[1] ~= 'parked') or record[2] ~= arg.epoch
  or (record[6] or '0') ~= arg.num_rewinds then
  return 'gone'
end
if (record[3] or '') ~= arg.known or (record[7] or '') ~= arg.known_inherited
  or (record[8] or '0') ~= arg.operation_number or (record[5] or '0') ~= arg.operation_start then
  return 'changed'
end
if tonumber(arg.length) > tonumber(record[4]) then
  return redis.call('EXISTS', key.operation) == 1 and 'ahead' or 'unlike'
end
local digest = tonumber(arg.length) == tonumber(record[4]) and arg.digest ~= '' and read_journal().at_end
if digest and digest ~= arg.digest then
  return 'unlike'
end
count_snapshots(record[3], arg.snapshots)
redis.call('HSET', key.session, 'snapshots', arg.snapshots, 'snapshot_store', arg.snapshot_store)
disinherit(arg.inherited)
-- What the latest operation has produced may still be asked for.
trim_journal(math.min(tonumber(arg.journal_start), tonumber(record[5] or 0)), true)
return 'set'
