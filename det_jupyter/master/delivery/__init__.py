"""Deliveries to other services: alerts to people, experiments to trackers.

    outbox.py           delivers to each place in turn; failed attempts are repeated
    alerts.py           the destinations of alerts and their results: the table `alerts`
    alert_requests.py   one attempt: a POST request, or a command
    trackers.py         what a tracker lacks, and the process that sends it: the table `tracked`
    programs.py         runs commands and processes

master/service/address_checks.py decides what may be sent to which address. Another kind of
delivery, such as the webhooks of a registry, would be another `Channel` of the outbox.
"""
