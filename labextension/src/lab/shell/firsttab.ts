/** Of several tabs of one browser, one: JupyterLab may be open in many. */

const HIDDEN_WAITS_MS = 1500; // so that a tab that somebody looks at is first

/**
 * Whether this tab is the first that asks for `key`; later ones get `false` while it is open.
 *
 * It is a lock that the tab keeps. Browsers offer locks to pages that were loaded over HTTPS or
 * from this computer; elsewhere each tab is the first.
 */
export async function isFirstTab(key: string): Promise<boolean> {
  if (document.visibilityState === 'hidden') {
    await new Promise(resolve => setTimeout(resolve, HIDDEN_WAITS_MS));
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
