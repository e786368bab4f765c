-- Replaces the list of a session's snapshots, and forgets the part of its journal that they make superfluous.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, epoch, the list as the caller knows it, the new one (see snapshot_plan.py),
--         the greatest length in it, journal_start (the one to be), snapshot_store that they are in,
--         num_rewinds when the newest was begun
-- returns 'set'
--         'ahead'   that length is not journaled yet
--         'changed' the list is another one
--         'gone'    closed, under another lease, or rewound since
local record = redis.call('HMGET', KEYS[1],
  'state', 'epoch', 'snapshots', 'journal_length', 'operation_start', 'num_rewinds')
if (record[1] ~= 'open' and record[1] ~= 'parked') or record[2] ~= ARGV[2] or (record[6] or '0') ~= ARGV[8] then
  return 'gone'
end
if (record[3] or '') ~= ARGV[3] then
  return 'changed'
end
if tonumber(ARGV[5]) > tonumber(record[4]) then
  return 'ahead'
end
redis.call('HSET', KEYS[1], 'snapshots', ARGV[4], 'snapshot_store', ARGV[7])
-- What the latest operation has produced may still be asked for.
trim_journal(math.min(tonumber(ARGV[6]), tonumber(record[5] or 0)))
return 'set'
