/** Of several tabs of one browser, one: JupyterLab may be open in many. */

// So that the tab that somebody works in is first, and then one that can be seen.
const UNFOCUSED_WAITS_MS = 400;
const HIDDEN_WAITS_MS = 1500;

/**
 * Whether this tab is the first that asks for `key`; later ones get `false` while it is open.
 *
 * It is a lock that the tab keeps. Browsers offer locks to pages that were loaded over HTTPS or
 * from this computer; elsewhere each tab is the first.
 */
export async function isFirstTab(key: string): Promise<boolean> {
  if (!document.hasFocus()) {
    const isHidden = document.visibilityState === 'hidden';
    const waitMs = isHidden ? HIDDEN_WAITS_MS : UNFOCUSED_WAITS_MS;
    await new Promise(resolve => setTimeout(resolve, waitMs));
  }
  const { locks } = navigator as { locks?: LockManager | null };
  if (!locks) {
    return true;
  }
  return new Promise(resolve => {
    const take = (lock: Lock | null): Promise<void> | void => {
      resolve(lock !== null);
      return lock === null ? undefined : new Promise(() => undefined);
    };
    locks.request(`det-jupyter:${key}`, { ifAvailable: true }, take).catch(() => resolve(true));
  });
}
