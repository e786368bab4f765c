-- Ends what offer_lane.lua has begun: the lane on the other worker is closed, or will be as an orphan.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, offered epoch
-- returns 'withdrawn' | 'gone'
if redis.call('HGET', KEYS[1], 'offered_epoch') ~= ARGV[2] then
  return 'gone'
end
redis.call('HDEL', KEYS[1], 'offered_until_ms')
return 'withdrawn'
