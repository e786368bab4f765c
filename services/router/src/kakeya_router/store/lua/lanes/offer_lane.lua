-- Names the epoch under which a lane may be opened on another worker while the session keeps the one it has.
-- of a session
-- arg epoch
-- arg generation: of the primary
-- arg lease_ms: for so long the other worker is not told that no lease covers that lane
-- arg claim: of the operation that runs on it and moves it, which others' offers do not hold up; '': it is idle
-- out offered {epoch}
-- out busy: another operation is on record, or such an epoch is taken already
-- out changed: it is not open, or under another lease
local record = redis.call('HMGET', key.session, 'state', 'epoch', 'offered_until_ms')
local now = now_ms()
if record[1] ~= 'open' or record[2] ~= arg.epoch then
  return {'changed'}
end
local claim = redis.call('HGET', key.operation, 'claim') or ''
if claim ~= arg.claim or (claim == '' and tonumber(record[3] or 0) > now) then
  return {'busy'}
end
local epoch = next_epoch()
redis.call('HSET', key.session, 'offered_epoch', epoch, 'offered_until_ms', string.format('%.0f', now + arg.lease_ms))
return {'offered', epoch}
