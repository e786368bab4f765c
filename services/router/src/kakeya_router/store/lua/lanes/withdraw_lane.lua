-- Ends what offer_lane.lua has begun: the lane on the other worker is closed, or will be as an orphan.
-- of a session
-- arg epoch: that was offered
-- out withdrawn
-- out gone
if redis.call('HGET', key.session, 'offered_epoch') ~= arg.epoch then
  return 'gone'
end
redis.call('HDEL', key.session, 'offered_until_ms')
return 'withdrawn'
