-- Takes the history back to a length, in the middle of an operation; the session's snapshots beyond it are forgotten.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal,
--         then heirs
-- ARGV    session_id, claim, epoch, length, the list of snapshots as the caller knows it, the new one (see
--         stored_snapshots.py), snapshot_store that they are in, lane_rewinds ('': the lane does not go back with the
--         history, and is given up),
--         the list of those inherited as the caller knows it, and the part of it that it keeps,
--         digest of the history in the lane then ('': not known)
-- returns {'rewound', record} PARKED if the lane is given up
--         {'changed', record} a list is another one; nothing is changed
--         {'gone'} closed, lost, taken over or under another lease; nothing is changed
local record = redis.call('HMGET', KEYS[1], 'epoch', 'snapshots', 'boundaries', 'inherited')
if not holds(ARGV[2]) or record[1] ~= ARGV[3] then
  return {'gone'}
end
if (record[2] or '') ~= ARGV[5] or (record[4] or '') ~= ARGV[9] then
  return {'changed', redis.call('HGETALL', KEYS[1])}
end
local length = tonumber(ARGV[4])
cut_journal(length, ARGV[11] ~= '' and ARGV[11] or nil)
local boundaries = {}
for boundary in string.gmatch(record[3] or '', '%d+') do
  if tonumber(boundary) <= length then
    boundaries[#boundaries + 1] = boundary
  end
end
redis.call('HSET', KEYS[1], 'boundaries', table.concat(boundaries, ','), 'snapshots', ARGV[6],
  'snapshot_store', ARGV[7], 'operation_id', ARGV[2], 'operation_start', ARGV[4], 'operation_seed', 0)
disinherit(KEYS[13], ARGV[10])
redis.call('HSET', KEYS[2], 'start_length', ARGV[4])
if ARGV[8] == '' then
  park()
else
  redis.call('HSET', KEYS[1], 'history_length', ARGV[4], 'lane_rewinds', ARGV[8])
end
return {'rewound', redis.call('HGETALL', KEYS[1])}
