-- Replaces the list of a session's snapshots, and forgets those that it has inherited and the part of its journal that
-- they make superfluous.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then heirs
-- ARGV    session_id, epoch, the list as the caller knows it, the new one (see stored_snapshots.py),
--         the greatest length in it, journal_start (the one to be), snapshot_store that they are in,
--         num_rewinds when the newest was begun,
--         then the list of those inherited as the caller knows it, and the part of it that it keeps,
--         digest of the history that the newest holds ('': not known)
-- returns 'set'
--         'ahead'   that length is not journaled yet
--         'unlike'  the newest holds another history than the session has, as where Redis was set back
--         'changed' a list is another one
--         'gone'    closed, under another lease, or rewound since
local record = redis.call('HMGET', KEYS[1],
  'state', 'epoch', 'snapshots', 'journal_length', 'operation_start', 'num_rewinds', 'inherited')
if (record[1] ~= 'open' and record[1] ~= 'parked') or record[2] ~= ARGV[2] or (record[6] or '0') ~= ARGV[8] then
  return 'gone'
end
if (record[3] or '') ~= ARGV[3] or (record[7] or '') ~= ARGV[9] then
  return 'changed'
end
if tonumber(ARGV[5]) > tonumber(record[4]) then
  return redis.call('EXISTS', KEYS[2]) == 1 and 'ahead' or 'unlike'
end
local digest = tonumber(ARGV[5]) == tonumber(record[4]) and ARGV[11] ~= '' and read_journal().at_end
if digest and digest ~= ARGV[11] then
  return 'unlike'
end
redis.call('HSET', KEYS[1], 'snapshots', ARGV[4], 'snapshot_store', ARGV[7])
disinherit(KEYS[13], ARGV[10])
-- What the latest operation has produced may still be asked for.
trim_journal(math.min(tonumber(ARGV[6]), tonumber(record[5] or 0)))
return 'set'
