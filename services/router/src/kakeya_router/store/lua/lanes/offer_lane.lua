-- Names the epoch under which a lane may be opened on another worker while the session keeps the one it has.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, epoch, lease_ms (for so long the other worker is not told that no lease covers that lane),
--         claim of the operation that runs on it and moves it ('': it is idle), which others' offers do not hold up
-- returns {'offered', epoch}
--         {'busy'} another operation is on record, or somebody has such an epoch already
--         {'changed'} it is not open, or under another lease
local record = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'offered_until_ms')
local now = now_ms()
if record[1] ~= 'open' or record[2] ~= ARGV[2] then
  return {'changed'}
end
local claim = redis.call('HGET', KEYS[2], 'claim') or ''
if claim ~= ARGV[4] or (claim == '' and tonumber(record[3] or 0) > now) then
  return {'busy'}
end
local epoch = next_epoch()
redis.call('HSET', KEYS[1], 'offered_epoch', epoch, 'offered_until_ms', string.format('%.0f', now + ARGV[3]))
return {'offered', epoch}
