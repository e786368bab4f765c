-- Names the epoch under which a lane may be opened on another worker while the session keeps the one it has.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, epoch, lease_ms (for so long the other worker is not told that no lease covers that lane)
-- returns {'offered', epoch}
--         {'busy'} an operation is on record, or somebody has such an epoch already
--         {'changed'} it is not open, or under another lease
local record = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'offered_until_ms')
local now = now_ms()
if record[1] ~= 'open' or record[2] ~= ARGV[2] then
  return {'changed'}
end
if redis.call('EXISTS', KEYS[2]) == 1 or tonumber(record[3] or 0) > now then
  return {'busy'}
end
local epoch = next_epoch()
redis.call('HSET', KEYS[1], 'offered_epoch', epoch, 'offered_until_ms', string.format('%.0f', now + ARGV[3]))
return {'offered', epoch}
