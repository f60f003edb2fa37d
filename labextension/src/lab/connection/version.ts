/** The version of this front end; a test compares it with the Python package's. */
export const VERSION = '0.1.0';

/** `PAGE_PROTOCOL` of det_jupyter/contract/messages/pages.py. */
export const PROTOCOL = 2;
