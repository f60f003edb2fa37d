"""All that leaves the house: alerts to people, experiments to trackers.

    outbox.py           sends what waits to each place, in turn; failed attempts are made again
    alerts.py           where an alert goes, and what became of it: the table `alerts`
    alert_requests.py   one attempt: a POST request, or a command
    trackers.py         what a tracker has not got, and the process that sends it: `tracked`
    programs.py         runs commands and processes

What may be sent to which address is decided in master/service/address_checks.py. Something else
that is to leave, such as the webhooks of a registry, is another `Channel` of the outbox.
"""
